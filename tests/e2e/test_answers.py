"""Answers that are sent in one piece are those that FastAPI and uvicorn would send."""

import json
import socket
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
    """All until the service closes."""
    with socket.create_connection(service.address, 20) as connection:
        connection.sendall(request)
        pieces = []
        while piece := connection.recv(2**16):
            pieces.append(piece)
    return b"".join(pieces)


def heads(answers: bytes) -> list[list[bytes]]:
    """Of every answer its status and headers in order, but for the date."""
    found = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        [length] = [int(x.split(b":")[1]) for x in lines if x.startswith(b"content-length:")]
        found.append(sorted(x for x in lines if not x.startswith(b"date:")) + [rest[:length]])
        answers = rest[length:]
    return found


def test_one_piece_is_what_two_would_be(service: Any) -> None:
    close = b"Connection: close"
    [at_once] = heads(answer_to(service, asked("/reconstruct", close)))
    [by_fastapi] = heads(answer_to(service, asked("/reconstruct?timeout_ms=60000", close)))
    assert at_once == by_fastapi
    assert b"connection: close" in at_once and b"x-request-id: same" in at_once


def test_requests_in_a_row_are_answered_in_a_row(service: Any) -> None:
    row = asked("/reconstruct") * 3 + asked("/reconstruct?timeout_ms=60000") + asked("/reconstruct")
    *kept, last = heads(answer_to(service, row + asked("/reconstruct", b"Connection: close")))
    assert len(kept) == 5 and all(each == kept[0] for each in kept)
    assert last[-1] == kept[0][-1]


def test_pages_that_may_call_can_read_it(start: Any, models: Path) -> None:
    service = start(models, cors_origins=PAGE)
    url = f"http://{service.address[0]}:{service.address[1]}/reconstruct"
    answer = httpx.post(url, content=BODY, headers={"origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
