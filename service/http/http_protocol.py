"""Connections that do not wait for ever: for a request's head, or for an answer to be read.

uvicorn bounds only the pause between two requests. A connection that never sends a whole head, or
that never reads its answer, stays open with it, and so does the answer in memory: closing waits
until everything is sent. Nor has it a bound for a head's length. Bodies are timed and measured in
service.http.exchange, where they can be answered.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.http.problems import malformed
from service.http.turn import Turn

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

log = logging.getLogger(__name__)

# ASGI extension: {"since": when it was read, by the loop's clock, "left": () -> has the caller
# left?, "whole": () -> is all of the body here?, "answer": (status, headers, body) -> was it sent,
# head and body in one piece?}
CONNECTION = "localmoments.connection"
HEAD_BYTES = 2**18  # a point of some ten thousand columns fits into a query
UNSENT_BYTES = 2**17  # that the system may hold of an answer
LOOKS = 4  # in the time that a caller is given


Headers = Sequence[tuple[bytes, bytes]]
# What the whole answer is to a head (method, path with query, headers) that is refused as it comes.
Refusal = Callable[[str, str, Headers], bytes | None]


@dataclass(frozen=True)
class Parcel:
    """A whole request: how to answer it (was it sent?), and how to have it go the usual way."""

    scope: Scope
    body: bytes
    since: float  # when the event loop began to read, by its clock
    answer: Callable[[int, Headers, bytes], bool]
    otherwise: Callable[[], None]


class Begun(Protocol):
    """Work for a parcel, which ends where nobody waits for it any more."""

    cancelled: bool


Express = Callable[[Parcel], Begun | None]


class Connection(HttpToolsProtocol):
    """uvicorn's, looked at now and then."""

    refusal: Refusal | None = None
    express: Express | None = None
    turn: Turn
    head_seconds: float  # for a head, from the connection's start or the head's first byte
    write_seconds: float  # in which some of what waits to be read must be read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        _hold_little(transport)
        self._head_since: float | None = self.loop.time()
        self._head_bytes: int | None = None  # None: none has begun
        self._unread: tuple[int, float] | None = None  # bytes, and since when so many
        self._is_refused = False  # the request whose body comes now
        self._receiving = False
        self._held: tuple[RequestResponseCycle, ASGI3Application] | None = None  # without a task
        self._quick: Begun | None = None  # what was asked without a task
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        if self._quick is not None:
            self._quick.cancelled = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._receiving, self._since = True, self.turn.since(self.loop)
        super().data_received(data)
        self._receiving = False
        self._let_go()  # the rest of a body may take its time, which a task looks after
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._head_since is None:
            self._head_since = self.loop.time()
        if self._head_bytes is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        if self._refused():
            return
        super().on_headers_complete()
        self._head_since, self._head_bytes, cycle = None, None, self.cycle
        told: dict[object, object] = {
            "since": self._since,
            "left": lambda: cycle.disconnected,
            "whole": lambda: not cycle.more_body,
            "answer": partial(self._answer, cycle),
        }
        cycle.scope["extensions"] = {CONNECTION: told}

    def _refused(self) -> bool:
        """Answered before uvicorn makes a task of it, which takes longer than the answer."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if self.refusal is None or busy or not self.parser.should_keep_alive():
            return False
        method, target = self.parser.get_method().decode(), self.url.decode("latin-1")
        answer = self.refusal(method, target, self.headers)
        if answer is not None:
            self.transport.write(answer)
            self._is_refused, self._head_since, self._head_bytes = True, None, None
            self.on_response_complete()
        return answer is not None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        """Held back until all that has come is read: then the whole request may be here."""
        if self.express is None or not self._receiving:
            super()._start_asgi_task(cycle, app)
        else:
            self._held = cycle, app

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            super()._start_asgi_task(*held)

    def _sent_by_express(self) -> bool:
        if self.express is None or self._held is None or self.cycle is not self._held[0]:
            return False
        cycle, app = self._held
        otherwise = partial(super()._start_asgi_task, cycle, app)
        answer = partial(self._answer, cycle)
        scope = cast(Scope, cycle.scope)
        self._quick = self.express(Parcel(scope, bytes(cycle.body), self._since, answer, otherwise))
        return self._quick is not None

    def _answer(
        self, cycle: RequestResponseCycle, status: int, headers: Headers, body: bytes
    ) -> bool:
        """What `cycle.send` does in two messages and two system calls; not for who is slow."""
        if cycle.disconnected or cycle.response_started or self.flow.write_paused:
            return False
        pieces = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            pieces += name, b": ", value, b"\r\n"
        if not cycle.keep_alive:
            pieces.append(b"connection: close\r\n")
        pieces += b"\r\n", body
        self.transport.write(b"".join(pieces))
        cycle.response_started = cycle.response_complete = True
        self._quick = None  # nor its rows any more
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            super().on_message_complete()
            if self._sent_by_express():
                self._held = None
        self._is_refused = False

    def send_400_response(self, msg: str) -> None:
        self.transport.write(malformed(f"{msg.rstrip('.')}."))
        self.transport.close()

    def resume_writing(self) -> None:
        self._unread = None  # what waits from now on is something else
        super().resume_writing()

    def _wait(self) -> None:
        seconds = min(self.head_seconds, self.write_seconds) / LOOKS
        self._next_look = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._wait()
        now = self.loop.time()
        if self._head_since is not None and now - self._head_since >= self.head_seconds:
            self.transport.close()
        # Only then nothing is added any more, so that fewer bytes mean that some were read.
        stands = self.flow.write_paused or self.transport.is_closing()
        size = self.transport.get_write_buffer_size() if stands else 0
        if not size or self._unread is None or size < self._unread[0]:
            self._unread = (size, now) if size else None
        elif now - self._unread[1] >= self.write_seconds:
            log.info("answer left unread", extra={"fields": {"bytes": size, "client": self.client}})
            self.transport.abort()


def _hold_little(transport: asyncio.Transport) -> None:
    """Linux would take 4 MB at once and then more in pieces of 1.4 MB, so that of a slow reader
    nothing would be seen for long; like this pieces are of 0.1 MB."""
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    connection = transport.get_extra_info("socket")
    if option is not None and connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)


def bounded(
    head_seconds: float,
    write_seconds: float,
    refusal: Refusal | None = None,
    express: Express | None = None,
) -> type[Connection]:
    """For uvicorn, which makes one of these for each connection."""
    own = {"head_seconds": head_seconds, "write_seconds": write_seconds, "turn": Turn()}
    asked = {"refusal": refusal, "express": express}
    given = {name: staticmethod(one) for name, one in asked.items() if one is not None}
    return type("BoundedConnection", (Connection,), own | given)
