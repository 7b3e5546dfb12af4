"""Callers who are slow, and callers who do not read: against a real process."""

import io
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

GOOD = json.dumps({"x": [[0.0] * 4]}).encode()
ROWS = 30_000  # their reconstruction as JSON is more than all buffers hold
POST = b"POST /reconstruct HTTP/1.1\r\nHost: a\r\n"
WHOLE = POST + b"Content-Length: %d\r\n\r\n%s" % (len(GOOD), GOOD)


@pytest.fixture(scope="module")
def service(start: Any, models: Path) -> Any:
    """One that is impatient."""
    return start(models, body_seconds=1, write_seconds=1, max_rows=ROWS)


@pytest.fixture
def raw(service: Any) -> Iterator[socket.socket]:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)  # before it connects
        connection.settimeout(20)
        connection.connect(service.address)
        yield connection


def drip(raw: socket.socket, piece: bytes) -> float:
    """The seconds until the other side has closed, while a piece is sent now and then."""
    began = time.monotonic()
    raw.settimeout(0.1)
    while time.monotonic() < began + 20:
        try:
            if piece:
                raw.sendall(piece)
            if not raw.recv(1, socket.MSG_PEEK):
                break
            time.sleep(0.1)
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - began


def rest(raw: socket.socket) -> bytes:
    """All that is still to be read."""
    raw.settimeout(20)
    parts = []
    try:
        while part := raw.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def ask(raw: socket.socket) -> None:
    """A whole request and its whole answer."""
    raw.sendall(WHOLE)
    said = raw.recv(65536)
    while not said.endswith(b"]}"):
        said += raw.recv(65536)
    assert said.startswith(b"HTTP/1.1 200 ")


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
def test_a_body_that_does_not_come_in_time_is_a_408(
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
    assert json.loads(body)["detail"] == "The body took more than 1 seconds."
    assert served(service)


@pytest.mark.parametrize("first", [False, True], ids=["first", "next"])
@pytest.mark.parametrize(
    ("begin", "piece"),
    [(b"", b"\r\n"), (POST, b"X-A: b\r\n"), (b"G", b""), (POST + b"X-A: ", b"b")],
)
def test_a_head_that_does_not_come_in_time_ends_the_connection(
    raw: socket.socket, service: Any, first: bool, begin: bytes, piece: bytes
) -> None:
    if first:
        ask(raw)
    raw.sendall(begin)
    assert 0.8 < drip(raw, piece) < 4
    assert served(service)


def test_a_silent_connection_is_closed(raw: socket.socket) -> None:
    assert 0.8 < drip(raw, b"") < 4


def test_a_head_without_end_is_refused(raw: socket.socket, service: Any) -> None:
    raw.sendall(b"GET /models HTTP/1.1\r\nX-A: " + b"a" * 2**18)
    top, _, body = rest(raw).partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 400 ") and b"application/problem+json" in top
    assert json.loads(body)["detail"] == "The head of the request is too long."
    assert served(service)


def test_a_long_head_is_read(raw: socket.socket) -> None:
    raw.sendall(b"GET /healthz HTTP/1.1\r\nX-A: " + b"a" * 200_000 + b"\r\n\r\n")
    assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_pause_between_two_requests_is_nobodys_fault(raw: socket.socket) -> None:
    for _ in range(3):
        ask(raw)
        time.sleep(1.5)


def rows() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones((ROWS, 4)))
    return stream.getvalue()


def ask_much(raw: socket.socket, connection: bytes = b"keep-alive") -> None:
    body = rows()
    kind = b"Content-Type: application/x-npy\r\nConnection: %s\r\n" % connection
    raw.sendall(POST + kind + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def open_to(service: Any, raw: socket.socket) -> bool:
    """Does the service still hold the connection?"""
    port = raw.getsockname()[1]
    connections = psutil.Process(service.process.pid).net_connections("tcp")
    return any(c.raddr and c.raddr.port == port for c in connections)


@pytest.mark.parametrize("connection", [b"keep-alive", b"close"])
def test_an_answer_that_nobody_reads_is_given_up(
    raw: socket.socket, service: Any, wait_for: Callable[..., None], connection: bytes
) -> None:
    ask_much(raw, connection)
    assert raw.recv(1, socket.MSG_PEEK) == b"H"  # it is on its way
    wait_for(lambda: not open_to(service, raw), 10)
    head, _, body = rest(raw).partition(b"\r\n\r\n")
    assert b"200 OK" in head and len(body) < 1_500_000
    assert any(line["message"] == "answer left unread" for line in service.log())
    assert served(service)


def test_who_reads_slowly_but_reads_gets_all(raw: socket.socket) -> None:
    ask_much(raw)
    began, got = time.monotonic(), bytearray()
    while b'"error":[' not in got[-900_000:] or not got.endswith(b"]}"):
        part = raw.recv(2**16)
        assert part, "cut off"
        got += part
        time.sleep(0.02)
    assert time.monotonic() - began > 1.5
    assert len(json.loads(got.partition(b"\r\n\r\n")[2])["error"]) == ROWS


def ask_stream(raw: socket.socket, steps: int) -> None:
    body = json.dumps({"walkers": 400, "steps": steps, "thin": 1, "stream": True}).encode()
    head = b"POST /sample HTTP/1.1\r\nHost: a\r\nX-Request-ID: stream-%d\r\n" % steps
    raw.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def test_who_reads_a_stream_slowly_gets_all(raw: socket.socket) -> None:
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
    wait_for(lambda: any(line.get("request_id") == "stream-4000" for line in service.log()), 20)
    [line] = [line for line in service.log() if line.get("request_id") == "stream-4000"]
    assert (line["status"], line["level"]) == (499, "info") and not open_to(service, raw)
    state = service.http.get(f"/chains/{chain[1].decode()}").json()
    assert not state["busy"] and 0 < state["step"] < 4000


def test_work_may_take_longer_than_any_of_these_times(service: Any) -> None:
    took, steps = 0.0, 1000
    while took < 2:
        began, asked = time.monotonic(), {"walkers": 1, "steps": steps, "thin": steps}
        assert service.http.post("/sample", json=asked).status_code == 200
        took, steps = time.monotonic() - began, steps * 2


def test_who_leaves_without_an_answer_is_counted_too(
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
    assert counted().get("499", 0) > before.get("499", 0)


@pytest.mark.parametrize("head", [b"NOT HTTP\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\0\1\2\r\n\r\n"])
def test_what_is_not_http_is_a_problem_too(raw: socket.socket, service: Any, head: bytes) -> None:
    raw.sendall(head)
    top, _, body = rest(raw).partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 400 ") and b"application/problem+json" in top
    assert json.loads(body)["status"] == 400 and json.loads(body)["detail"].endswith(".")
    assert service.http.get("/healthz").status_code == 200
