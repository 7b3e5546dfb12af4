"""Request ids, the body's limit, the line that every request leaves, and how many are let in."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from service.http.exchange import BodyLimits
from service.http.gate import Gate
from service.http.middleware import GONE, Edge, Hurry

ROW = {"x": [[0.5] * 8]}


def test_a_request_id_comes_back(client: Any) -> None:
    answer = client.get("/healthz", headers={"x-request-id": "abc-1.2_3"})
    assert answer.headers["x-request-id"] == "abc-1.2_3"


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, "näh", '"quoted"', "<b>"])
def test_an_unsound_request_id_is_replaced(client: Any, given: str | None) -> None:
    headers = {} if given is None else {"x-request-id": given.encode("latin-1")}
    ids = [client.get("/healthz", headers=headers).headers["x-request-id"] for _ in range(2)]
    assert ids[0] != ids[1] and all(len(i) == 32 and i.isalnum() for i in ids)


@pytest.fixture(scope="module")
def narrow(make_client: Any) -> Any:
    return make_client(max_body_bytes=1000)


def test_a_body_that_says_it_is_too_long_is_refused(narrow: Any, problem: Any) -> None:
    answer = narrow.post("/reconstruct", content=b"x" * 1001)
    problem(answer, 413, "larger than 1000 bytes")
    assert answer.headers["connection"] == "close"


def test_a_body_that_does_not_say_how_long_it_is_is_refused_too(narrow: Any, problem: Any) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b"x" * 100

    problem(narrow.post("/reconstruct", content=pieces()), 413, "larger than 1000 bytes")
    assert sent == 11  # the rest is not even asked for


def test_a_body_within_the_limit_is_read(narrow: Any) -> None:
    assert narrow.post("/reconstruct", json=ROW).status_code == 200


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    records = [r for r in caplog.records if r.name == "service.request"]
    return [{"level": r.levelno, **r.fields} for r in records]  # type: ignore[attr-defined]


def test_a_request_leaves_one_line(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client.post("/reconstruct", json=ROW, headers={"x-request-id": "me"})
        client.get("/healthz")
    post, health = lines(caplog)
    assert (post["method"], post["path"], post["status"]) == ("POST", "/reconstruct", 200)
    assert (post["request_id"], post["level"]) == ("me", logging.INFO) and post["ms"] > 0
    assert health["level"] == logging.DEBUG  # asked by machines every few seconds


def test_a_caller_who_leaves_is_no_error(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    scope = {
        "type": "http", "method": "POST", "path": "/reconstruct", "raw_path": b"/reconstruct",
        "query_string": b"", "headers": [], "client": ("1.2.3.4", 5), "scheme": "http",
        "http_version": "1.1", "root_path": "", "server": ("test", 80),
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    with caplog.at_level(logging.INFO):
        client.run(client.app(scope, receive, send))
    [line] = lines(caplog)
    assert sent == [] and (line["status"], line["level"]) == (GONE, logging.INFO)


def test_who_does_not_fit_in_hears_so_before_the_body_is_read(client: Any, problem: Any) -> None:
    """Of ten at once two are let in, whatever becomes of these; later ones find room again."""

    async def many() -> list[httpx.Response]:
        free, answers = asyncio.Event(), []

        async def slow(request: Any) -> Any:
            await free.wait()
            return PlainTextResponse("done")

        hurry, limits = Hurry("/slow", slow), BodyLimits(1000, 1.0)
        edge = Edge(client.app, lambda scope: hurry, limits, Gate(2, 1.0), client.app.state.metrics)
        transport = httpx.ASGITransport(app=edge)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as caller:
            tasks = [asyncio.create_task(caller.post("/slow", content=b"x")) for _ in range(10)]
            answers += [await tasks[i] for i in range(2, 10)]
            free.set()
            answers += [await tasks[i] for i in range(2)]
            answers.append(await caller.post("/slow"))
        return answers

    *refused, first, second, later = client.run(many())
    for answer in refused:
        problem(answer, 429, "2 requests are being answered")
        assert int(answer.headers["retry-after"]) >= 1
    assert {first.text, second.text, later.text} == {"done"}


def test_requests_with_and_without_a_query_are_answered_alike(client: Any) -> None:
    """The first by FastAPI, the second without it."""
    by_query = client.post("/reconstruct?model=tiny", json=ROW)
    at_once = client.post("/reconstruct", json=ROW)
    assert by_query.json() == at_once.json()
    differ = {"x-request-id"}
    assert {k: v for k, v in by_query.headers.items() if k not in differ} == {
        k: v for k, v in at_once.headers.items() if k not in differ
    }
    lines = [x for x in client.get("/metrics").text.splitlines() if 'route="/reconstruct"' in x]
    assert any(line.startswith("localmoments_requests_total") for line in lines)


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
    assert [a.headers.keys() - answers[0].headers.keys() for a in answers] == [set()] * 3


def test_samples_are_not_refused_at_the_gate(client: Any) -> None:
    gate = client.app.edge.gate
    gate.inside += 10**6
    try:
        answer = client.post("/sample", json={"model": "tiny", "steps": 1, "thin": 1})
    finally:
        gate.inside -= 10**6
    assert answer.status_code == 200


def timed_requests(client: Any) -> list[str]:
    name = 'localmoments_request_duration_seconds_count{method="POST",route="/reconstruct"}'
    return [x for x in client.get("/metrics").text.splitlines() if x.startswith(name)]


def test_a_shut_gate_answers_a_head_as_it_would_answer_the_request(client: Any) -> None:
    edge, gate = client.app.edge, client.app.edge.gate
    head = [(b"x-request-id", b"mine")]
    assert edge.refusal("POST", "/reconstruct", head) is None  # there is room
    gate.inside += 10**6
    try:
        timed = timed_requests(client)
        whole = edge.refusal("POST", "/reconstruct", head)
        assert timed_requests(client) == timed  # it would pull down the median of those let in
        slow = [edge.refusal("POST", t, head) for t in ("/sample", "/reconstruct?model=tiny")]
        request = client.post("/reconstruct", json=ROW, headers={"x-request-id": "mine"})
    finally:
        gate.inside -= 10**6
    assert slow == [None, None]
    start, _, body = whole.partition(b"\r\n\r\n")
    assert start.startswith(b"HTTP/1.1 429 Too Many Requests\r\n") and body == request.content
    said = dict(line.split(": ", 1) for line in start.decode().split("\r\n")[1:])
    same = ("content-type", "content-length", "retry-after", "x-request-id")
    assert {k: said[k] for k in same} == {k: request.headers[k] for k in same}
