"""What happens to every request before and after FastAPI.

Each is counted, timed and logged; an error that nobody foresaw becomes a problem. Routes in a hurry
are called without FastAPI, which takes longer to find out what a handler is to be given than such a
handler needs: it still describes them, and takes those requests that have a query.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from localmoments.errors import LocalMomentsError
from service.http.exchange import BodyLimits, Exchange, request_id
from service.http.gate import Gate
from service.http.metrics import Metrics
from service.http.problems import problem, whole_answer

log = logging.getLogger("service.request")

# Asked every few seconds by machines.
QUIET = ("/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready")
GONE = 499  # the caller left before the answer's end: nobody sees this status but the log

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Hurry:
    """A route that is called without FastAPI where a request has no query."""

    path: str  # as documented
    handler: Handler
    gated: bool = True  # counts, and may be refused


Hurried = Callable[[Scope], Hurry | None]


class Edge:
    """The application as the server sees it; `outermost` if nothing is around it that would have to
    see an answer on its way."""

    def __init__(
        self, app: ASGIApp, hurried: Hurried, limits: BodyLimits, gate: Gate, metrics: Metrics,
        *, outermost: bool = False,
    ) -> None:  # fmt: skip
        self._app, self._hurried, self._outermost = app, hurried, outermost
        self.gate, self._limits, self._metrics = gate, limits, metrics

    def refusal(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> bytes | None:
        """The whole answer where the gate is shut; counted, and not logged one by one."""
        if not self.gate.is_full or "?" in target:
            return None
        hurry = self._hurried({"method": method, "path": target, "headers": headers})
        if hurry is None or not hurry.gated:
            return None
        self._metrics.request(method, hurry.path, 429, None)
        return whole_answer(self.gate.refusal(), request_id(headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, exchange = perf_counter(), Exchange(scope, receive, send, self._limits)
        try:
            await self._answer(scope, exchange)
        except ClientDisconnect:
            exchange.status = GONE
        except Exception as error:
            if not isinstance(error, LocalMomentsError):
                log.exception("unexpected error", extra={"fields": _identity(scope)})
            if exchange.status:  # too late to say so: the connection breaks off
                raise
            await problem(error, scope)(scope, exchange.receive, exchange.send)
        finally:
            self.note(scope, exchange.status, perf_counter() - began)

    async def _answer(self, scope: Scope, exchange: Exchange) -> None:
        scope["route"] = hurry = self._hurried(scope)
        exchange.check_length()
        if hurry is None or scope["query_string"]:
            return await self._app(scope, exchange.receive, exchange.send)
        if not hurry.gated:
            return await self._run(hurry.handler, scope, exchange)
        self.gate.check()
        self.gate.enter(exchange.since)
        try:
            await self._run(hurry.handler, scope, exchange)
        finally:
            self.gate.leave(exchange.since, monotonic())

    async def _run(self, handler: Handler, scope: Scope, exchange: Exchange) -> None:
        response = await handler(Request(scope, exchange.receive))
        if not (self._outermost and exchange.answer(response)):
            await response(scope, exchange.receive, exchange.send)

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.request(scope["method"], route, status, seconds)
        level = logging.DEBUG if route in QUIET and status < 500 else logging.INFO
        if log.isEnabledFor(level):
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
