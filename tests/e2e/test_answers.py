"""A request gets the same answer however it is sent: with a query, in pieces, in a row."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

BODY = json.dumps({"x": [[0.5, -0.25, 0.0, 1.0]]}).encode()
PAGE = "https://page.example"


@pytest.fixture(scope="module")
def service(start: Any, models: Path) -> Any:
    return start(models)


def asked(path: str, *more: bytes) -> bytes:
    lines = [b"POST %s HTTP/1.1" % path.encode(), b"Host: a", b"Content-Length: %d" % len(BODY)]
    return b"\r\n".join([*lines, b"X-Request-ID: same", *more, b"", BODY])


def answer_to(service: Any, request: bytes) -> bytes:
    """Return everything until the service closes the connection."""
    with socket.create_connection(service.address, 20) as connection:
        connection.sendall(request)
        pieces = []
        while piece := connection.recv(2**16):
            pieces.append(piece)
    return b"".join(pieces)


def heads(answers: bytes) -> list[list[bytes]]:
    """Return the status, the headers (without the date) and the body of every answer."""
    found = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        [length] = [int(x.split(b":")[1]) for x in lines if x.startswith(b"content-length:")]
        found.append([*sorted(x for x in lines if not x.startswith(b"date:")), rest[:length]])
        answers = rest[length:]
    return found


def test_a_query_or_proxy_headers_do_not_change_the_answer(service: Any) -> None:
    close = b"Connection: close"
    [plain] = heads(answer_to(service, asked("/reconstruct", close)))
    [query] = heads(answer_to(service, asked("/reconstruct?timeout_ms=60000", close)))
    [proxy] = heads(answer_to(service, asked("/reconstruct", close, b"X-Forwarded-For: 10.1.1.1")))
    assert plain == query == proxy
    assert b"connection: close" in plain and b"x-request-id: same" in plain


def test_pipelined_requests_are_answered_in_order(service: Any) -> None:
    row = asked("/reconstruct") * 3 + asked("/reconstruct?timeout_ms=60000") + asked("/reconstruct")
    *kept, last = heads(answer_to(service, row + asked("/reconstruct", b"Connection: close")))
    assert len(kept) == 5 and all(each == kept[0] for each in kept)
    assert last[-1] == kept[0][-1]


def test_a_body_in_pieces_gets_the_same_answer(service: Any) -> None:
    request = asked("/reconstruct", b"Connection: close")
    whole = heads(answer_to(service, request))
    with socket.create_connection(service.address, 20) as connection:
        for piece in (request[:40], request[40:-20], request[-20:-1], request[-1:]):
            connection.sendall(piece)
            time.sleep(0.05)
        answer = b"".join(iter(lambda: connection.recv(2**16), b""))
    assert heads(answer) == whole


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"{", 422, "not valid JSON"),
        (b'{"x": [[1, 2]]}', 422, "columns"),
        (b'{"x": [[1, 2, 3, 1e300]]}', 422, "too far"),
        (b'{"x": [[1, 2, 3, true]]}', 422, "not a number"),
        (b'{"x": [[1, 2, 3, 4]], "model": "nobody"}', 404, "nobody"),
        (b'{"x": [[1, 2, 3, 4]], "other": 1}', 422, "other"),
    ],
)
def test_a_query_does_not_change_the_error(
    service: Any, body: bytes, status: int, word: str
) -> None:
    url = "http://{}:{}/reconstruct".format(*service.address)
    plain, query = (httpx.post(url, content=body, params=p) for p in ({}, {"timeout_ms": 60000}))
    assert (plain.status_code, query.status_code) == (status, status)
    assert word in plain.json()["detail"]
    assert {k: v for k, v in plain.json().items() if k != "request_id"} == {
        k: v for k, v in query.json().items() if k != "request_id"
    }


def test_every_request_is_counted_and_timed(service: Any) -> None:
    def counted() -> tuple[float, float]:
        text = httpx.get("http://{}:{}/metrics".format(*service.address)).text
        names = (
            'localmoments_requests_total{method="POST",route="/reconstruct",status="200"}',
            'localmoments_request_duration_seconds_count{method="POST",route="/reconstruct"}',
        )
        found = dict(line.rsplit(" ", 1) for line in text.splitlines() if "{" in line)
        return float(found.get(names[0], 0)), float(found.get(names[1], 0))

    before = counted()
    for _ in range(3):
        answer_to(service, asked("/reconstruct", b"Connection: close"))
    after = counted()
    assert (after[0] - before[0], after[1] - before[1]) == (3, 3)


def test_pages_of_allowed_origins_can_read_the_answer(start: Any, models: Path) -> None:
    service = start(models, cors_origins=PAGE)
    url = f"http://{service.address[0]}:{service.address[1]}/reconstruct"
    answer = httpx.post(url, content=BODY, headers={"origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
