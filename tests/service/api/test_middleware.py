"""Request ids, the body's limit, and the line that every request leaves in the log."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from service.api.middleware import GONE

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
