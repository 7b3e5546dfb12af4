"""The middleware: request ids, limits, errors, and the log line of every request."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from service.http.middleware import CLIENT_GONE, PIECE_BYTES, HttpLimits, RequestMiddleware

ROW = {"x": [[0.5] * 8]}
SCOPE: dict[str, Any] = {
    "type": "http", "method": "POST", "path": "/reconstruct", "raw_path": b"/reconstruct",
    "query_string": b"", "headers": [], "client": ("1.2.3.4", 5), "scheme": "http",
    "http_version": "1.1", "root_path": "", "server": ("test", 80),
}  # fmt: skip


class Sink:
    """Metrics that nobody reads."""

    def count_request(self, *args: object) -> None:
        pass


def wrap(
    app: Any, requests: int = 10, body_seconds: float = 1.0, write_seconds: float = 1.0
) -> RequestMiddleware:
    limits = HttpLimits(requests, 10**6, body_seconds, write_seconds)
    return RequestMiddleware(app, limits, Sink())  # type: ignore[arg-type]


def read_log(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    records = [r for r in caplog.records if r.name == "service.request"]
    return [{"level": r.levelno, **r.fields} for r in records]  # type: ignore[attr-defined]


def test_a_request_id_comes_back(client: Any) -> None:
    answer = client.get("/healthz", headers={"x-request-id": "abc-1.2_3"})
    assert answer.headers["x-request-id"] == "abc-1.2_3"


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, "näh", '"quoted"', "<b>"])
def test_a_malformed_request_id_is_replaced(client: Any, given: str | None) -> None:
    headers = {} if given is None else {"x-request-id": given.encode("latin-1")}
    ids = [client.get("/healthz", headers=headers).headers["x-request-id"] for _ in range(2)]
    assert ids[0] != ids[1] and all(len(i) == 32 and i.isalnum() for i in ids)


@pytest.fixture(scope="module")
def narrow(make_client: Any) -> Any:
    return make_client(max_body_bytes=1000)


def test_a_body_is_refused_by_its_content_length(narrow: Any, problem: Any) -> None:
    answer = narrow.post("/reconstruct", content=b"x" * 1001)
    problem(answer, 413, "larger than 1000 bytes")
    assert answer.headers["connection"] == "close"


def test_a_body_without_a_length_is_refused_as_it_arrives(narrow: Any, problem: Any) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"x" * 100

    problem(narrow.post("/reconstruct", content=pieces()), 413, "larger than 1000 bytes")
    assert sent == 11  # the rest is not read


def test_a_body_within_the_limit_is_read(narrow: Any) -> None:
    assert narrow.post("/reconstruct", json=ROW).status_code == 200


def test_a_request_leaves_one_line(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client.post("/reconstruct", json=ROW, headers={"x-request-id": "me"})
        client.get("/healthz")
    post, health = read_log(caplog)
    assert (post["method"], post["path"], post["status"]) == ("POST", "/reconstruct", 200)
    assert (post["request_id"], post["level"]) == ("me", logging.INFO) and post["ms"] > 0
    assert health["level"] == logging.DEBUG  # polled every few seconds


def test_a_client_that_leaves_is_not_an_error(
    client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    with caplog.at_level(logging.INFO):
        client.run(client.app(dict(SCOPE), receive, send))
    [line] = read_log(caplog)
    assert sent == [] and (line["status"], line["level"]) == (CLIENT_GONE, logging.INFO)


def test_requests_above_the_limit_get_429_before_their_body_is_read() -> None:
    """Of ten requests at once, two are served; later ones are served again."""
    reads = 0

    async def ask_many() -> list[httpx.Response]:
        free = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            nonlocal reads
            reads += (await receive())["body"] == b"x"
            await free.wait()
            await PlainTextResponse("done")(scope, receive, send)

        transport = httpx.ASGITransport(app=wrap(slow, requests=2))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            tasks = [asyncio.create_task(http.post("/slow", content=b"x")) for _ in range(10)]
            answers = [await tasks[i] for i in range(2, 10)]
            free.set()
            answers += [await tasks[i] for i in range(2)]
            return [*answers, await http.post("/slow", content=b"y")]

    *refused, first, second, later = asyncio.run(ask_many())
    for answer in refused:
        assert answer.status_code == 429 and "limit of 2 requests" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) >= 1
    assert {first.text, second.text, later.text} == {"done"} and reads == 2


@pytest.mark.parametrize("path", ["/sample", "/healthz", "/readyz", "/metrics", "/", "/web/a.js"])
def test_chains_probes_and_pages_are_not_counted_as_in_flight(path: str) -> None:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse("done")(scope, receive, send)

    middleware = wrap(answer, requests=1)
    middleware.in_flight = 1
    assert asyncio.run(exchange(middleware, Client(1), path))[0]["status"] == 200
    assert asyncio.run(exchange(middleware, Client(1), "/moments"))[0]["status"] == 429


def test_a_response_that_has_started_gives_its_place_back() -> None:
    in_flight = []

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        in_flight.append(middleware.in_flight)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        in_flight.append(middleware.in_flight)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    middleware = wrap(stream)
    asyncio.run(exchange(middleware, Client(1)))
    assert in_flight == [1, 0] and middleware.in_flight == 0


@pytest.mark.parametrize("how", ["query", "body", "key", "forwarded"])
def test_a_request_is_answered_alike_with_and_without_query_and_headers(
    client: Any, how: str
) -> None:
    plain = client.post("/reconstruct", json=ROW)
    other = {
        "query": lambda: client.post("/reconstruct?model=tiny", json=ROW),
        "body": lambda: client.post("/reconstruct", json={**ROW, "model": "tiny"}),
        "key": lambda: client.post("/reconstruct", json=ROW, headers={"x-api-key": "any"}),
        "forwarded": lambda: client.post(
            "/reconstruct", json=ROW, headers={"x-forwarded-for": "203.0.113.7"}
        ),
    }[how]()
    assert plain.json() == other.json()
    assert {**plain.headers, "x-request-id": ""} == {**other.headers, "x-request-id": ""}


def test_samples_with_and_without_a_query_are_the_same(client: Any) -> None:
    body = {"walkers": 2, "steps": 3, "thin": 1, "seed": 7}
    answers = [
        client.post("/sample?model=tiny", json=body),
        client.post("/sample", json=body | {"model": "tiny"}),
        client.post("/sample", json=body | {"model": "tiny"}, headers={"idempotency-key": "k"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    first, *others = [{**answer.json(), "chain": ""} for answer in answers]
    assert others == [first, first]


# Slow clients


class Client:
    """A client that sends the parts of a body with a pause before each, and leaves later."""

    def __init__(self, parts: int, pause: float = 0.0, stay: float = 0.0) -> None:
        self.left, self.pause, self.stay = parts, pause, stay
        self.got: list[Any] = []
        self.reads: Callable[[], Awaitable[None]] = self._read_at_once

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(self.pause if self.left else self.stay)
        self.left -= 1
        if self.left < 0:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"x", "more_body": self.left > 0}

    async def send(self, message: Any) -> None:
        await self.reads()
        self.got.append(message)

    async def _read_at_once(self) -> None:
        pass


async def exchange(
    middleware: RequestMiddleware, client: Client, path: str = "/reconstruct"
) -> list[Any]:
    await middleware({**SCOPE, "path": path}, client.receive, client.send)
    return client.got


def reader(work: float = 0.0) -> tuple[list[str], Any]:
    """An application that reads until the client leaves, and works after each message."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1] != "http.disconnect":
            seen.append((await receive())["type"])
            await asyncio.sleep(work)

    return seen, app


def test_sending_a_byte_now_and_then_does_not_extend_the_limit() -> None:
    seen, app = reader()
    began = monotonic()
    [start, _] = asyncio.run(exchange(wrap(app, body_seconds=0.3), Client(1000, pause=0.02)))
    assert start["status"] == 408
    assert 0.25 < monotonic() - began < 2 and 1 < len(seen) < 20


def test_the_time_of_the_service_does_not_count_against_the_client() -> None:
    seen, app = reader(work=0.1)
    asyncio.run(exchange(wrap(app, body_seconds=0.2), Client(5)))
    assert seen == ["http.request"] * 5 + ["http.disconnect"]


def test_after_the_body_there_is_no_time_limit_for_receiving() -> None:
    seen, app = reader()
    asyncio.run(exchange(wrap(app, body_seconds=0.1), Client(2, stay=0.4)))
    assert seen == ["http.request"] * 2 + ["http.disconnect"]


@pytest.mark.parametrize("pause", [0.01, 60])
def test_a_slow_body_is_a_408_and_closes_the_connection(
    make_client: Any, problem: Any, pause: float
) -> None:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(pause)

    client = make_client(body_seconds=0.2)
    for path in ("/reconstruct", "/moments", "/sample"):
        answer = client.post(path, content=drops())
        problem(answer, 408, "The body took longer than 0.2 seconds")
        assert answer.headers["connection"] == "close"
    assert client.post("/reconstruct", json=ROW).status_code == 200


def test_a_client_that_stops_reading_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(b"x" * 3 * PIECE_BYTES)(scope, receive, send)

    client = Client(1)

    async def stall() -> None:
        if len(client.got) == 2:  # the head and one piece
            await asyncio.sleep(60)

    client.reads = stall
    with caplog.at_level(logging.INFO):
        began = monotonic()
        asyncio.run(exchange(wrap(app, write_seconds=0.2), client))
    assert monotonic() - began < 5 and len(client.got) == 2
    assert read_log(caplog)[-1]["status"] == CLIENT_GONE


def test_a_client_that_reads_slowly_gets_everything() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await PlainTextResponse(b"x" * (3 * PIECE_BYTES + 1))(scope, receive, send)

    client = Client(1)
    client.reads = lambda: asyncio.sleep(0.1)
    got = asyncio.run(exchange(wrap(app, write_seconds=0.3), client))
    assert b"".join(m.get("body", b"") for m in got) == b"x" * (3 * PIECE_BYTES + 1)
    assert [m.get("more_body") for m in got] == [None, True, True, True, False]
