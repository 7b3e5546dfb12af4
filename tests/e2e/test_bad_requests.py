"""A bad request gets a problem with one sentence, and the next request is served."""

import io
import socket
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

D = 4
NPY = "application/x-npy"


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


GOOD = {"x": [[0.0] * D]}
BAD: dict[str, tuple[int, str, dict[str, Any]]] = {
    "wrong width": (422, "3 columns, but gaussian@1 takes 4", {"json": {"x": [[1, 2, 3]]}}),
    "NaN": (422, "not valid JSON", {"content": b'{"x": [[NaN, 0, 0, 0]]}'}),
    "infinity": (422, "not valid JSON", {"content": b'{"x": [[1e999, 0, 0, 0]]}'}),
    "NaN in an array": (422, "x[0][1] is nan",
                        {"content": npy([[0, np.nan, 0, 0]]), "headers": {"content-type": NPY}}),
    "1e38": (422, "too far", {"json": {"x": [[0, 1e38, 0, 0]]}}),
    "no rows": (422, "no rows", {"json": {"x": []}}),
    "empty rows": (422, "empty rows", {"json": {"x": [[], []]}}),
    "half a body": (422, "not valid JSON", {"content": b'{"x": [[1, 2'}),
    "half an array": (422, "does not have the length",
                      {"content": npy(np.ones((2, D)))[:-9], "headers": {"content-type": NPY}}),
    "no body": (422, "not valid JSON", {}),
    "unknown model": (404, "there are gaussian", {"json": {**GOOD, "model": "other"}}),
    "a path for a model": (404, "'../../etc/passwd'",
                           {"json": {**GOOD, "model": "../../etc/passwd"}}),
    "unknown parameter": (422, "stesp", {"json": {**GOOD, "stesp": 1}}),
    "sigma where there is one level": (422, "leave sigma out", {"json": {**GOOD, "sigma": 0.5}}),
    "too many rows": (413, "5000 rows; the limit is 4096",
                      {"content": npy(np.ones((5000, D), "u1")), "headers": {"content-type": NPY}}),
    "too long": (413, "larger than 100000 bytes", {"content": b" " * 100_001}),
    "too long, in pieces": (413, "larger than 100000 bytes",
                            {"content": (b" " * 5_000 for _ in range(21))}),
    "wrong format": (415, "text/csv", {"content": b"1", "headers": {"content-type": "text/csv"}}),
    "compressed": (415, "gzip", {"content": b"1", "headers": {"content-encoding": "gzip"}}),
    "unsupported response": (406, "x-npy", {"json": GOOD, "headers": {"accept": "image/png"}}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_problem_and_the_next_request_is_served(
    http: httpx.Client, case: str
) -> None:
    status, words, sent = BAD[case]
    answer = http.post("/reconstruct", **sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"] and answer.json()["error"] == answer.json()["detail"]
    assert http.post("/reconstruct", json=GOOD).status_code == 200


def test_a_gigabyte_is_refused_unread(service: Any, http: httpx.Client) -> None:
    before = psutil.Process(service.process.pid).memory_info().rss
    with socket.create_connection((http.base_url.host, http.base_url.port or 0), 30) as raw:
        raw.sendall(b"POST /reconstruct HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
        head = raw.recv(65536)
        assert head.startswith(b"HTTP/1.1 413 ")
        while raw.recv(65536):  # until the server closes the connection
            pass
    assert psutil.Process(service.process.pid).memory_info().rss < before + 20e6
