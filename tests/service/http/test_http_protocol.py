"""When a connection is given up, on a transport that holds what it is told to.

What a real process does with real sockets is in tests/e2e/test_edges.py.
"""

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service.http.http_protocol import CONNECTION, HEAD_BYTES, Connection, Parcel, bounded

SECONDS = 0.2
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Transport(asyncio.Transport):
    """Sends nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.waiting, self.closing, self.aborted = b"", 0, False, False

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: Any) -> None:
        self.written += data

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


async def busy(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(60)


def lived(
    begin: Callable[[Connection, Transport], None],
    now_and_then: Callable[[Connection, Transport], None] = lambda connection, transport: None,
    head: float = 60,
    write: float = 60,
) -> Transport:
    """The transport after four times the time that is given."""

    async def live() -> Transport:
        transport = Transport()
        config = uvicorn.Config(busy, log_config=None, ws="none", lifespan="off")
        connection = bounded(head, write)(config, ServerState(), {})
        connection.connection_made(transport)
        begin(connection, transport)
        for _ in range(16):
            await asyncio.sleep(SECONDS / 4)
            now_and_then(connection, transport)
        return copy(transport)  # before the loop ends what is at work

    return asyncio.run(live())


def hold(connection: Connection, transport: Transport) -> None:
    transport.waiting = 1000
    connection.pause_writing()


def test_an_answer_of_which_nothing_is_read_is_given_up() -> None:
    assert lived(hold, write=SECONDS).aborted


def test_an_answer_of_which_a_little_is_read_is_not() -> None:
    def read_a_little(connection: Connection, transport: Transport) -> None:
        transport.waiting -= 1

    assert not lived(hold, read_a_little, write=SECONDS).aborted


def test_a_stream_that_is_taken_piece_by_piece_is_not() -> None:
    """What waits is as much at every look, and yet never the same."""

    def next_piece(connection: Connection, transport: Transport) -> None:
        connection.resume_writing()
        connection.pause_writing()

    assert not lived(hold, next_piece, write=SECONDS).aborted


@pytest.mark.parametrize(("closing", "waiting"), [(True, 1), (True, 0), (False, 1)])
def test_a_closing_connection_is_given_up_for_a_single_byte(closing: bool, waiting: int) -> None:
    def leave(connection: Connection, transport: Transport) -> None:
        transport.closing, transport.waiting = closing, waiting

    assert lived(leave, write=SECONDS).aborted == (closing and waiting == 1)


def test_a_connection_without_a_head_is_closed_and_one_at_work_is_not() -> None:
    def say(data: bytes) -> Callable[[Connection, Transport], None]:
        return lambda connection, transport: connection.data_received(data)

    assert lived(say(b""), head=SECONDS).closing
    assert lived(say(REQUEST[:-1]), head=SECONDS).closing
    assert not lived(say(REQUEST), head=SECONDS).closing
    assert not lived(say(REQUEST + b"GET"), head=SECONDS).closing  # its time has not come


@pytest.mark.parametrize("length", [HEAD_BYTES - 100, HEAD_BYTES])
def test_a_head_has_a_longest_length(length: int) -> None:
    def begin(connection: Connection, transport: Transport) -> None:
        for piece in (b"GET / HTTP/1.1\r\nX-A: ", b"a" * (length // 2), b"a" * (length // 2)):
            connection.data_received(piece)

    transport = lived(begin)
    assert transport.closing == (b"400 Bad Request" in transport.written) == (length == HEAD_BYTES)


def test_the_application_can_see_that_the_caller_left() -> None:
    seen: list[bool] = []

    def leave(connection: Connection, transport: Transport) -> None:
        connection.data_received(REQUEST)
        left: Any = connection.scope["extensions"][CONNECTION]["left"]
        seen.append(left())
        connection.connection_lost(None)
        seen.append(left())

    lived(leave)
    assert seen == [False, True]


async def _answering(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _refuse_full(method: str, target: str, headers: Any) -> bytes | None:
    full = (method, target) == ("POST", "/full")
    return b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n" if full else None


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_who_is_refused_as_it_comes_can_ask_again_on_the_same_connection(pieces: int) -> None:
    """However the bytes arrive: refused, served, refused, served, and every answer in its turn."""
    asks = [
        b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n%s" % (path, body)
        for path, body in ((b"/full", b"aaaaa"), (b"/room", b"bbbbb")) * 2
    ]

    async def live() -> bytes:
        transport, config = Transport(), uvicorn.Config(_answering, log_config=None, ws="none")
        connection = bounded(60, 60, _refuse_full)(config, ServerState(), {})
        connection.connection_made(transport)
        for ask in asks:
            size = -(-len(ask) // pieces)
            for start in range(0, len(ask), size):
                connection.data_received(ask[start : start + size])
            await asyncio.sleep(0.01)
        connection.connection_lost(None)
        return transport.written

    written = asyncio.run(live())
    assert [part[:3] for part in written.split(b"HTTP/1.1 ")[1:]] == [b"429", b"200"] * 2
    assert written.count(b"bbbbb") == 2 and b"aaaaa" not in written


class Quick:
    """Takes requests to /quick, and answers when it is told to."""

    def __init__(self) -> None:
        self.cancelled, self.parcels = False, list[Parcel]()

    def __call__(self, parcel: Parcel) -> "Quick | None":
        if parcel.scope["path"] != "/quick":
            return None
        self.parcels.append(parcel)
        return self


def _ask(path: bytes, body: bytes) -> bytes:
    return b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%s" % (path, len(body), body)


def _spoken(quick: Quick, *pieces: bytes) -> tuple[bytes, bytes]:
    """What was written before the quick answers, and after them."""

    async def live() -> tuple[bytes, bytes]:
        transport, config = Transport(), uvicorn.Config(_answering, log_config=None, ws="none")
        connection = bounded(60, 60, express=quick)(config, ServerState(), {})
        connection.connection_made(transport)
        for piece in pieces:
            connection.data_received(piece)
            await asyncio.sleep(0.01)
        before = transport.written
        while quick.parcels:
            parcel = quick.parcels.pop(0)
            assert parcel.answer(200, [(b"content-length", b"1")], b"q")
            await asyncio.sleep(0.01)
        connection.connection_lost(None)
        return before, transport.written[len(before) :]

    return asyncio.run(live())


def test_the_next_request_waits_for_a_quick_one_before_it() -> None:
    before, after = _spoken(Quick(), _ask(b"/quick", b"one") + _ask(b"/usual", b"two"))
    assert before == b"" and after.index(b"\r\n\r\nq") < after.index(b"two")


def test_a_request_that_is_not_here_as_a_whole_is_none_for_the_quick_way() -> None:
    ask = _ask(b"/quick", b"later")
    before, after = _spoken(Quick(), ask[:-2], ask[-2:])
    assert before.endswith(b"later") and after == b""


def test_what_cannot_be_answered_quickly_takes_the_usual_way() -> None:
    quick = Quick()

    async def live() -> bytes:
        transport, config = Transport(), uvicorn.Config(_answering, log_config=None, ws="none")
        connection = bounded(60, 60, express=quick)(config, ServerState(), {})
        connection.connection_made(transport)
        connection.data_received(_ask(b"/quick", b"sorry"))
        quick.parcels[0].otherwise()
        await asyncio.sleep(0.01)
        return transport.written

    assert asyncio.run(live()).endswith(b"sorry")


def test_who_leaves_ends_the_work_that_was_begun_for_them() -> None:
    quick = Quick()
    _spoken(quick, _ask(b"/quick", b"one"))
    assert not quick.cancelled  # it was answered

    async def live() -> None:
        config = uvicorn.Config(_answering, log_config=None, ws="none")
        connection = bounded(60, 60, express=quick)(config, ServerState(), {})
        connection.connection_made(Transport())
        connection.data_received(_ask(b"/quick", b"one"))
        connection.connection_lost(None)

    asyncio.run(live())
    assert quick.cancelled
