"""What happens to every request, as pure ASGI (BaseHTTPMiddleware would hide disconnects)."""

import logging
import re
import uuid
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.metrics import Metrics
from service.api.problems import problem
from service.core.errors import TooLargeError

log = logging.getLogger("service.request")

REQUEST_ID = "x-request-id"
SOUND_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
QUIET = ("/healthz", "/readyz", "/metrics")  # asked every few seconds by machines
GONE = 499  # the caller left before the answer: nobody sees this status but the log


class RequestIds:
    """X-Request-ID: the caller's own if it is sound, else a new one; sent back with the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if SOUND_ID.fullmatch(given) else uuid.uuid4().hex
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
            status = status or GONE
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
    return {
        "method": scope["method"],
        "path": scope["path"][:500],
        "request_id": scope.get("state", {}).get("request_id", ""),
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
