"""Bodies that do not come in time, and callers who leave: the exchange alone and in its place."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from localmoments.errors import SlowBodyError
from service.http.exchange import BodyLimits, Exchange
from service.http.http_protocol import CONNECTION

SCOPE: dict[str, Any] = {"type": "http", "headers": []}


def part(more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x", "more_body": more}


async def nowhere(message: Any) -> None:
    pass


class Caller:
    """Sends the parts of a body with a pause before each, and then waits before it leaves."""

    def __init__(self, parts: int, pause: float = 0.0, stay: float = 0.0) -> None:
        self.left, self.pause, self.stay = parts, pause, stay

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(self.pause if self.left else self.stay)
        self.left -= 1
        return part(self.left > 0) if self.left >= 0 else {"type": "http.disconnect"}


def reader(work: float = 0.0) -> tuple[list[str], Any]:
    """An application that reads until the caller leaves, and works after each message."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1] != "http.disconnect":
            seen.append((await receive())["type"])
            await asyncio.sleep(work)

    return seen, app


def serve(
    app: Any, caller: Caller, seconds: float = 1.0, scope: Any = SCOPE, send: Any = nowhere
) -> None:
    exchange = Exchange(dict(scope), caller.receive, send, BodyLimits(10**6, seconds))
    asyncio.run(app(scope, exchange.receive, exchange.send))


def test_a_byte_now_and_then_does_not_help() -> None:
    seen, app = reader()
    began = monotonic()
    with pytest.raises(SlowBodyError, match=r"more than 0\.3 seconds"):
        serve(app, Caller(1000, pause=0.02), 0.3)
    assert 0.25 < monotonic() - began < 2 and 1 < len(seen) < 20


def test_a_body_that_takes_its_time_is_no_queue_of_ours() -> None:
    """What the gate counts as waiting begins when the whole body is there."""
    caller, began = Caller(5, pause=0.05), monotonic()
    exchange = Exchange(dict(SCOPE), caller.receive, nowhere, BodyLimits(10**6, 1.0))

    async def read() -> None:
        while (await exchange.receive())["more_body"]:
            pass

    asyncio.run(read())
    assert began + 5 * 0.05 <= exchange.since <= monotonic()


def test_the_servers_own_time_is_not_the_callers() -> None:
    seen, app = reader(work=0.1)
    serve(app, Caller(5), 0.2)
    assert seen == ["http.request"] * 5 + ["http.disconnect"]


def test_the_callers_leave_is_waited_for_as_long_as_it_takes() -> None:
    seen, app = reader()
    serve(app, Caller(2, stay=0.4), 0.1)
    assert seen == ["http.request"] * 2 + ["http.disconnect"]


@pytest.mark.parametrize("pause", [0.01, 60])
def test_a_slow_body_is_a_408_and_ends_the_connection(
    make_client: Any, problem: Any, pause: float
) -> None:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(pause)

    client = make_client(body_seconds=0.2)
    for path in ("/reconstruct", "/moments", "/sample"):
        answer = client.post(path, content=drops())
        problem(answer, 408, "The body took more than 0.2 seconds")
        assert answer.headers["connection"] == "close"
    assert client.post("/reconstruct", json={"x": [[0.5] * 8]}).status_code == 200


def test_who_has_left_is_sent_nothing_more() -> None:
    left, sent = [False, True], []

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for i in range(5):
            await send({"type": "http.response.body", "body": b"%d" % i})

    told = {"since": 0.0, "left": lambda: left.pop(0), "whole": lambda: True}
    with pytest.raises(ClientDisconnect):
        serve(app, Caller(1), scope={**SCOPE, "extensions": {CONNECTION: told}}, send=send)
    assert [message["body"] for message in sent] == [b"0", b"1"]


def test_a_server_that_does_not_tell_is_served_as_well() -> None:
    seen, app = reader()
    serve(app, Caller(1))
    assert seen == ["http.request", "http.disconnect"]
