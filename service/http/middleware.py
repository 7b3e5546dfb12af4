"""The ASGI middleware around every route: request ids, limits, errors, access log and metrics.

A request passes through here once, whatever its headers:

- Request id. The client's `X-Request-ID` if it is well formed, otherwise a new one. It is part of
  the response, of the log line and of every problem.
- In-flight limit. At most `max_requests` requests may be waiting for their response. Above that, a
  request gets 429 with `Retry-After`, before its body is read. A request gives its place back when
  its response starts, so a client that reads slowly does not keep others out. `/sample` is not
  counted here: chains run long and are limited by their rows (`max_load_rows`, in the batcher).
- Body limits. A body that is too large gets 413, by its Content-Length or as it arrives. A body
  that arrives too slowly gets 408.
- Write limit. A client that does not read its response for `write_seconds` is given up.
- Errors. Every exception becomes a problem (service.http.problems).
- One count in the metrics and one log line for each request, except that requests above the
  in-flight limit are only counted. A request that is refused here has not been routed yet, so the
  metrics count it under route="other". If CORS is on, its middleware is outside of this one and
  answers preflight requests, which are neither counted nor logged.

This is plain ASGI because Starlette's BaseHTTPMiddleware hides disconnects from the route.
"""

import asyncio
import logging
import random
import re
from dataclasses import dataclass
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localmoments.errors import OverloadError, SlowBodyError, TooLargeError
from service.http.metrics import Metrics
from service.http.problems import EXPECTED, problem_response
from service.http.timeouts import Wait, Watchdog

log = logging.getLogger("service.request")

REQUEST_ID = "x-request-id"
VALID_ID = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
CLIENT_GONE = 499  # nginx's status for a client that left; only the log and the metrics show it
# Health probes and metrics are polled every few seconds: they are logged at debug level.
POLLED = frozenset({"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})
UNLIMITED = POLLED | {"/", "/docs", "/openapi.json", "/sample"}  # not in the in-flight limit
UNLIMITED_FOLDERS = ("/web/", "/docs/")
# A client that retries at once must not take the time that accepted requests need.
REFUSAL_SECONDS = 0.006
PIECE_BYTES = 2**16  # a longer body is sent in pieces, so that an unread one is noticed
RETRY_SECONDS = 1  # the least that Retry-After can say; a place is free much sooner


@dataclass(frozen=True)
class HttpLimits:
    """What one client, and all clients together, may use."""

    requests: int  # in flight
    body_bytes: int
    body_seconds: float  # waiting for one body, in total
    write_seconds: float  # waiting for a client to read


class RequestMiddleware:
    """Wrap an ASGI application; see the module's description."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, metrics: Metrics) -> None:
        self.app, self.limits = app, limits
        self.in_flight = 0
        self._watchdog = Watchdog()
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        exchange = Exchange(self, scope, receive, send)
        self._watchdog.add(exchange)
        try:
            exchange.check_length()
            await self._enter(exchange)
            await self.app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            exchange.status = CLIENT_GONE
        except Exception as error:
            if not isinstance(error, EXPECTED):
                log.exception("unexpected error", extra={"fields": _identify(scope)})
            if exchange.status:  # The response has started. Raising closes the connection.
                raise
            await problem_response(error, scope)(scope, exchange.receive, exchange.send)
        finally:
            self._watchdog.remove(exchange)
            exchange.leave()
            self._record(exchange, perf_counter() - exchange.began)

    async def _enter(self, exchange: "Exchange") -> None:
        """Take a place among the requests in flight, or raise OverloadError."""
        path: str = exchange.scope["path"]
        if path in UNLIMITED or path.startswith(UNLIMITED_FOLDERS):
            return
        if self.in_flight >= self.limits.requests:
            exchange.is_refused = True
            await asyncio.sleep(REFUSAL_SECONDS)
            raise OverloadError(
                f"The service is at its limit of {self.limits.requests} requests at a time.",
                retry_after=RETRY_SECONDS,
            )
        self.in_flight += 1
        exchange.is_counted = True

    def _record(self, exchange: "Exchange", seconds: float) -> None:
        scope, status = exchange.scope, exchange.status
        route = getattr(scope.get("route"), "path", "other")
        if exchange.is_refused:  # cheap, and no part in the durations
            return self._metrics.count_request(scope["method"], route, status, None)
        self._metrics.count_request(scope["method"], route, status, seconds)
        level = logging.DEBUG if status < 500 and route in POLLED else logging.INFO
        if log.isEnabledFor(level):
            fields = {**_identify(scope), "status": status, "ms": round(seconds * 1000, 2)}
            log.log(level, "request", extra={"fields": fields})


class Exchange(Wait):
    """One request and its response: `receive` and `send` with limits."""

    def __init__(
        self, middleware: RequestMiddleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self.scope, self.status = scope, 0
        self.is_counted = self.is_refused = False  # by the in-flight limit
        self.began = perf_counter()
        self._middleware, self._limits = middleware, middleware.limits
        self._receive, self._send = receive, send
        self._bytes_read, self._is_body_read = 0, False
        self._seconds_left = self._limits.body_seconds
        self._length = self._id = b""
        for name, value in scope["headers"]:
            if name == b"x-request-id":
                self._id = value
            elif name == b"content-length":
                self._length = value
        if not VALID_ID.fullmatch(self._id):
            self._id = b"%032x" % random.getrandbits(128)
        scope.setdefault("state", {})["request_id"] = self._id.decode()

    def check_length(self) -> None:
        """Refuse a body by its Content-Length."""
        if self._length.isdigit() and int(self._length[:20]) > self._limits.body_bytes:
            raise self._too_large()

    def leave(self) -> None:
        """Give back the place among the requests in flight."""
        if self.is_counted:
            self.is_counted = False
            self._middleware.in_flight -= 1

    async def receive(self) -> Message:
        """Read the next part of the body; after the body, wait for the client to disconnect."""
        if self._is_body_read:
            return await self._receive()
        self.start(self._seconds_left)
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not self.catch():
                raise
            raise SlowBodyError(
                f"The body took longer than {self._limits.body_seconds:g} seconds to arrive."
            ) from None
        finally:
            # Only the time spent waiting counts, in total: one byte a second does not help.
            self._seconds_left = self.stop()
        self._bytes_read += len(message.get("body", b""))
        if self._bytes_read > self._limits.body_bytes:
            raise self._too_large()
        self._is_body_read = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response; raise ClientDisconnect if the client does not read."""
        if message["type"] == "http.response.start":
            self.leave()
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self._id)]
        self.start(self._limits.write_seconds)
        try:
            if len(message.get("body", b"")) <= PIECE_BYTES:
                await self._send(message)
            else:
                await self._send_pieces(message)
        except asyncio.CancelledError:
            if not self.catch():
                raise
            log.info("response not read", extra={"fields": _identify(self.scope)})
            raise ClientDisconnect from None
        finally:
            self.stop()

    async def _send_pieces(self, message: Message) -> None:
        body, more_body = message["body"], message.get("more_body", False)
        for start in range(0, len(body), PIECE_BYTES):
            stop = start + PIECE_BYTES
            is_last = stop >= len(body)
            self.start(self._limits.write_seconds)
            await self._send({
                "type": "http.response.body",
                "body": body[start:stop],
                "more_body": more_body or not is_last,
            })  # fmt: skip

    def _too_large(self) -> TooLargeError:
        limit = self._limits.body_bytes
        return TooLargeError(f"The body is larger than {limit} bytes, the limit for one request.")


def _identify(scope: Scope) -> dict[str, str]:
    """Describe a request in the log."""
    state = scope.get("state", {})
    return {
        "method": scope["method"],
        "path": scope["path"][:500],
        "request_id": state.get("request_id", ""),
        "caller": state.get("caller", ""),  # name of the API key
        "client": (scope.get("client") or ("",))[0],
    }
