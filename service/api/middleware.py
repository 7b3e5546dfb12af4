"""What happens to every request, as pure ASGI (BaseHTTPMiddleware would hide disconnects)."""

import asyncio
import logging
import random
import re
from collections.abc import Sequence
from time import monotonic, perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.connections import LEFT
from service.api.metrics import Metrics
from service.api.problems import problem
from service.core.errors import SlowBodyError, TooLargeError

log = logging.getLogger("service.request")

REQUEST_ID = "x-request-id"
SOUND_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
QUIET = ("/healthz", "/readyz", "/metrics")  # asked every few seconds by machines
GONE = 499  # the caller left before the answer's end: nobody sees this status but the log


class RequestIds:
    """X-Request-ID: the caller's own if it is sound, else a new one; sent back with the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if SOUND_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"
        scope.setdefault("state", {})["request_id"] = request_id

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        return await self.app(scope, receive, marked)


class Observe:
    """Counts, times and logs each request; an error that nobody foresaw becomes a problem."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        began, status = perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except ClientDisconnect:
            status = GONE
        except Exception as error:
            log.exception("unexpected error", extra={"fields": _identity(scope)})
            if status:  # too late to say so: the connection breaks off
                raise
            await problem(error, scope)(scope, receive, watched)
        finally:
            self._note(scope, status, perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.request(scope["method"], route, status, seconds)
        level = logging.DEBUG if route in QUIET and status < 500 else logging.INFO
        fields = {**_identity(scope), "status": status, "ms": round(seconds * 1000, 2)}
        log.log(level, "request", extra={"fields": fields})


def _identity(scope: Scope) -> dict[str, str]:
    state = scope.get("state", {})
    return {
        "method": scope["method"],
        "path": scope["path"][:500],
        "request_id": state.get("request_id", ""),
        "caller": state.get("caller", ""),  # the name of an API key
        "client": (scope.get("client") or ("",))[0],
    }


class BodyLimit:
    """Refuses a body that says it is too long at once, and one that does not say as it arrives."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app = app
        self.most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        said = Headers(scope=scope).get("content-length", "0")
        if said.isdecimal() and int(said[:20]) > self.most:
            return await problem(self._refusal(), scope)(scope, receive, send)
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > self.most:
                raise self._refusal()
            return message

        return await self.app(scope, counted, send)

    def _refusal(self) -> TooLargeError:
        return TooLargeError(f"The body is larger than {self.most} bytes, the most that is read.")


class BodyTime:
    """Refuses a body that does not arrive in time.

    Only the time in which it is waited for counts, all of it together: the server's own work is
    not the caller's delay, and a byte a second does not help. Once the body is there, `receive`
    waits for the caller's leave as long as the answer takes.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app = app
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        left, complete = self.seconds, False

        async def timed() -> Message:
            nonlocal left, complete
            if complete:
                return await receive()
            began = monotonic()
            try:
                async with asyncio.timeout(left):
                    message = await receive()
            except TimeoutError:
                raise SlowBodyError(f"The body took more than {self.seconds:g} seconds.") from None
            finally:
                left -= monotonic() - began
            complete = not message.get("more_body", False)
            return message

        return await self.app(scope, timed, send)


class Departures:
    """`send` raises ClientDisconnect once the caller has left, or was left for not reading.

    uvicorn's own says nothing then, so that a stream would go on for nobody.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope.get("extensions", {}).get(LEFT)
        if connection is None:  # not served by service.api.connections
            return await self.app(scope, receive, send)

        async def told(message: Message) -> None:
            await send(message)
            if connection["left"]():
                raise ClientDisconnect

        return await self.app(scope, receive, told)


class CrossOrigin(CORSMiddleware):
    """Pages of these origins may call; no cookies are ever read, so `*` is no danger to a key."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("authorization", "content-type", "idempotency-key", "x-api-key",
                           REQUEST_ID),
            expose_headers=("retry-after", "x-chain-id", "x-chain-step", "x-model", REQUEST_ID),
        )  # fmt: skip
