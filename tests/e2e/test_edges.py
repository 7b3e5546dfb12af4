"""Clients that send slowly, read slowly or not at all, against a real process."""

import io
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GOOD = json.dumps({"x": [[0.0] * 4]}).encode()
ROWS = 60_000  # as JSON they are larger than all buffers between service and client
POST = b"POST /reconstruct HTTP/1.1\r\nHost: a\r\n"
WHOLE = POST + b"Content-Length: %d\r\n\r\n%s" % (len(GOOD), GOOD)


@pytest.fixture(scope="module")
def service(start: Any, models: Path) -> Any:
    """A service with short time limits."""
    return start(models, body_seconds=1, write_seconds=2, max_rows=ROWS)


@pytest.fixture
def raw(service: Any) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)  # before it connects
        connection.settimeout(20)
        connection.connect(service.address)
        yield connection


def rest(raw: socket.socket) -> bytes:
    """Read everything that is left."""
    raw.settimeout(20)
    parts = []
    try:
        while part := raw.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def ask(raw: socket.socket) -> None:
    """Send a whole request and read its whole answer."""
    raw.sendall(WHOLE)
    answer = b""
    while not answer.endswith(b"]}"):
        part = raw.recv(65536)
        assert part, "the service closed the connection"
        answer += part
    assert answer.startswith(b"HTTP/1.1 200 ")


def served(service: Any) -> bool:
    headers = {"content-type": "application/json"}
    return bool(service.http.post("/reconstruct", content=GOOD, headers=headers).is_success)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"Content-Length: 1000\r\n\r\n", b""),
        (b"Content-Length: 1000\r\n\r\n", b" "),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n", b""),
    ],
)
def test_a_body_that_arrives_too_slowly_is_a_408(
    raw: socket.socket, service: Any, head: bytes, piece: bytes
) -> None:
    raw.sendall(POST + head)
    began = time.monotonic()
    raw.settimeout(0.1)
    said = b""
    while b"408" not in said and time.monotonic() < began + 10:
        try:
            raw.sendall(piece)
            said += raw.recv(65536)
        except TimeoutError:
            continue
    assert 0.8 < time.monotonic() - began < 5
    head_, _, body = (
        (said + rest(raw)).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").partition(b"\r\n\r\n")
    )
    assert head_.startswith(b"HTTP/1.1 408 ") and b"connection: close" in head_
    assert json.loads(body)["detail"] == "The body took longer than 1 seconds to arrive."
    assert served(service)


def test_a_pause_between_two_requests_is_allowed(raw: socket.socket) -> None:
    for _ in range(3):
        ask(raw)
        time.sleep(1.5)


def rows() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones((ROWS, 4)))
    return stream.getvalue()


def ask_much(raw: socket.socket, name: bytes, connection: bytes = b"keep-alive") -> None:
    body = rows()
    kind = b"Content-Type: application/x-npy\r\nConnection: %s\r\n" % connection
    kind += b"X-Request-ID: %s\r\n" % name
    raw.sendall(POST + kind + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def find_line(service: Any, request_id: str) -> dict[str, Any]:
    """Return the log line of a finished request, or an empty one."""
    lines = [line for line in service.log() if line.get("request_id") == request_id]
    return next((line for line in lines if line["message"] == "request"), {})


@pytest.mark.parametrize("connection", [b"keep-alive", b"close"])
def test_an_answer_that_nobody_reads_is_given_up(
    raw: socket.socket, service: Any, wait_for: Callable[..., None], connection: bytes
) -> None:
    ask_much(raw, b"unread-" + connection, connection)
    assert raw.recv(1, socket.MSG_PEEK) == b"H"  # it is on its way
    name = f"unread-{connection.decode()}"
    wait_for(lambda: find_line(service, name), 20)
    assert (find_line(service, name)["status"], find_line(service, name)["level"]) == (499, "info")
    head, _, body = rest(raw).partition(b"\r\n\r\n")
    [length] = re.findall(rb"content-length: (\d+)", head)
    assert b"200 OK" in head and len(body) < int(length)
    assert served(service)


def test_a_client_that_reads_slowly_gets_the_whole_answer(raw: socket.socket) -> None:
    ask_much(raw, b"slow")
    began, got = time.monotonic(), bytearray()
    while b'"error":[' not in got[-2_000_000:] or not got.endswith(b"]}"):
        part = raw.recv(2**16)
        assert part, "cut off"
        got += part
        time.sleep(0.005)
    assert time.monotonic() - began > 0.5
    assert len(json.loads(got.partition(b"\r\n\r\n")[2])["error"]) == ROWS


def ask_stream(raw: socket.socket, steps: int) -> None:
    body = json.dumps({"walkers": 400, "steps": steps, "thin": 1, "stream": True}).encode()
    head = b"POST /sample HTTP/1.1\r\nHost: a\r\nX-Request-ID: stream-%d\r\n" % steps
    raw.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def test_a_client_that_reads_a_stream_slowly_gets_all_of_it(raw: socket.socket) -> None:
    ask_stream(raw, steps=100)
    began, got = time.monotonic(), bytearray()
    while b"[DONE]" not in got[-100:]:
        part = raw.recv(2**16)
        assert part, "cut off"
        got += part
        time.sleep(0.02)
    assert time.monotonic() - began > 1.5 and b'"done":true' in got[-200:]


def test_a_stream_that_nobody_reads_is_given_up_and_its_chain_kept(
    raw: socket.socket, service: Any, wait_for: Callable[..., None]
) -> None:
    ask_stream(raw, steps=4000)
    chain = re.search(rb"x-chain-id: (\S+)", raw.recv(1000))
    assert chain
    wait_for(lambda: find_line(service, "stream-4000"), 20)
    line = find_line(service, "stream-4000")
    assert (line["status"], line["level"]) == (499, "info")
    state = service.http.get(f"/chains/{chain[1].decode()}").json()
    assert not state["busy"] and 0 < state["step"] < 4000


def test_computing_may_take_longer_than_these_limits(service: Any) -> None:
    took, steps = 0.0, 1000
    while took < 2:
        began, asked = time.monotonic(), {"walkers": 1, "steps": steps, "thin": steps}
        assert service.http.post("/sample", json=asked).status_code == 200
        took, steps = time.monotonic() - began, steps * 2


def test_a_client_that_leaves_early_is_counted_too(
    service: Any, wait_for: Callable[..., None]
) -> None:
    def counted() -> dict[str, int]:
        text = service.http.get("/metrics").text
        found = re.findall(r'requests_total\{.*"/reconstruct",status="(\d+)"\} ([\d.]+)', text)
        return {status: int(float(count)) for status, count in found}

    before = counted()
    for _ in range(50):
        with socket.create_connection(service.address) as connection:
            connection.sendall(WHOLE)
    wait_for(lambda: sum(counted().values()) == sum(before.values()) + 50)


@pytest.mark.parametrize("head", [b"NOT HTTP\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\0\1\2\r\n\r\n"])
def test_what_is_not_http_gets_400(raw: socket.socket, service: Any, head: bytes) -> None:
    raw.sendall(head)
    assert rest(raw).startswith(b"HTTP/1.1 400 ")
    assert service.http.get("/healthz").status_code == 200
