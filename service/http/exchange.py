"""One request and its answer, as ASGI's two functions with our limits and marks around them.

One object does what would be five layers of middleware, because a layer costs more time than what
it does. (BaseHTTPMiddleware would hide disconnects as well.)
"""

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from localmoments.errors import SlowBodyError, TooLargeError
from service.http.http_protocol import CONNECTION

REQUEST_ID = "x-request-id"
SOUND_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")


RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class BodyLimits:
    """The most that is read, and the longest that is waited for it."""

    size: int
    seconds: float


def request_id(headers: RawHeaders) -> str:
    """The caller's own if it is sound, else a new one."""
    given = _header(headers, b"x-request-id")
    return given.decode() if SOUND_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


def _header(headers: RawHeaders, wanted: bytes) -> bytes:
    """The last of this name, or nothing."""
    return next((value for name, value in reversed(headers) if name == wanted), b"")


class Exchange:
    """`receive` and `send` in the place of the server's.

    - X-Request-ID: the caller's own if it is sound, else a new one; sent back with the answer.
    - A body that says it is too long is refused at once, one that does not say as it arrives.
    - So is a body that does not arrive in time. Only the time in which it is waited for counts, all
      of it together: the server's own work is not the caller's delay, and a byte a second does not
      help. Once it is there, `receive` waits for the caller's leave as long as the answer takes.
    - `send` raises ClientDisconnect once the caller has left, or was left for not reading. The
      server's own says nothing then, and a stream would go on for nobody.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: BodyLimits) -> None:
        self.status = 0
        self._receive, self._send, self._limits = receive, send, limits
        self._connection = scope.get("extensions", {}).get(CONNECTION)  # None: not our own
        # When it was there to be answered, by the clock of event loops: the caller's own delay is
        # not ours.
        self.since = monotonic() if self._connection is None else self._connection["since"]
        self._arrived, self._left, self._complete = 0, limits.seconds, False
        self._length = _header(scope["headers"], b"content-length")
        self.request_id = request_id(scope["headers"])
        scope.setdefault("state", {})["request_id"] = self.request_id

    def check_length(self) -> None:
        if self._length.isdigit() and int(self._length[:20]) > self._limits.size:
            raise self._too_large()

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        message = await (self._receive() if self._is_here() else self._in_time())
        self._arrived += len(message.get("body", b""))
        if self._arrived > self._limits.size:
            raise self._too_large()
        self._complete = not message.get("more_body", False)
        return message

    def _is_here(self) -> bool:
        return self._connection is not None and self._connection["whole"]()

    async def _in_time(self) -> Message:
        began = monotonic()
        try:
            async with asyncio.timeout(self._left):
                return await self._receive()
        except TimeoutError:
            raise SlowBodyError(
                f"The body took more than {self._limits.seconds:g} seconds."
            ) from None
        finally:
            self.since = monotonic()
            self._left -= self.since - began

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self.request_id.encode()),
            ]
        await self._send(message)
        if self._connection is not None and self._connection["left"]():
            raise ClientDisconnect

    def answer(self, response: Response) -> bool:
        """All of it at once, where it is all there and the connection is our own."""
        if self._connection is None or type(response) is not Response or response.background:
            return False
        headers = [*response.raw_headers, (b"x-request-id", self.request_id.encode())]
        if self._connection["answer"](response.status_code, headers, response.body):
            self.status = response.status_code
        return self.status > 0

    def _too_large(self) -> TooLargeError:
        most = self._limits.size
        return TooLargeError(f"The body is larger than {most} bytes, the most that is read.")
