"""Fuzz the service with almost valid bodies: .npy, base64 and JSON.

Each case gets a 200, or a 4xx with a reason. FUZZ_CASES and FUZZ_SEED change length and seed.
"""

import base64
import gzip
import http.client
import io
import json
import os
import pickle
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import psutil
import pytest

CASES, SEED = int(os.environ.get("FUZZ_CASES", 20_000)), int(os.environ.get("FUZZ_SEED", 1))
THREADS, CHECK_EVERY = 2, 200
MODELS = Path(__file__).parents[2] / "models"
D = 2  # columns of spiral-dae
SMALL = {
    "default_model": "spiral-dae", "max_row_steps": 60, "max_sample_values": 500, "max_rows": 50,
    "max_points": 8, "max_body_bytes": 100_000, "log_level": "warning",
}  # fmt: skip
NPY = "application/x-npy"
FORMATS = ["*/*", "application/json", NPY, "application/x-npz", "application/x-ndjson",
           "text/event-stream", "text/html", "a/b;q=x, */*;q=0.1", ""]  # fmt: skip

Rng = random.Random


@dataclass(frozen=True)
class Request:
    path: str
    body: bytes | None = None  # None: GET
    headers: dict[str, str] = field(default_factory=dict)


def choose(rng: Rng, usual: Any, *others: Any) -> Any:
    """Return the usual value most of the time, so that one fault does not hide the others."""
    return usual if rng.random() < 0.75 else rng.choice(others)


def corrupt(data: bytes, rng: Rng) -> bytes:
    """Flip, insert, delete or repeat some bytes."""
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        i = rng.randrange(len(data) + 1)
        j = rng.randrange(i, min(len(data), i + 9) + 1)
        flipped = bytes(b ^ (1 << rng.randrange(8)) for b in data[i : i + 1])
        data = rng.choice([
            data[:i] + flipped + data[i + 1 :],
            data[:i] + rng.randbytes(rng.choice([1, 4])) + data[i:],
            data[:i] + data[j:],
            data[:j] + data[i:j] + data[j:],
        ])  # fmt: skip
    return data[:60_000]


# JSON


class Raw(str):
    """Text that is written into JSON unchanged."""


def nest(levels: int) -> Raw:
    return Raw("[" * levels + "]" * levels)


TOKENS = [
    "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "9" * 400, "1E+2", "01", "1.", "-", "0x10",
    "nul", "'a'", '"\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\x"', '"a', "[1,]", "{,}",
    '{"a":1,"a":2}', '{"chain":"a","points":[]}', "/*", "\x00", "\ufeff1", "1 2", "",
    '{"a":' * 600 + "1" + "}" * 600,
]  # fmt: skip
SCALARS = [
    None, True, False, 0, -1, 1, 2, 1.0, 0.5, -0.0, 3.5, 1e-320, 1e6, 1e38, 1e308, -1e308,
    2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**64), 10**30,
    "", "a", "NaN", "1", "data", "noise", "gibbs", "hidden", "spiral-dae@1", "digits-dae", "@",
    "a@", "\0", "é𝔘\u202e", "../../etc/passwd", "x" * 3000, "0" * 32, "F" * 32, "%00", "{}",
]  # fmt: skip
NESTED = [
    [], [[]], [[[]]], [0], [0, 0], [[0, 0]], [[0, 0, 0]], [[0], [0, 0]], [["a", "b"]],
    [["a" * 999, 0]], [[True, False]], [[None, 0]], [[1e300, 0]], [[0, 0]] * 60, [0] * 1001,
    [[]] * 500, ["mean"] * 500, [True, False], [1, 0], [1.0, 0.0], [2, 0], [True, 0], [0.1, 0.2],
    [{}], {}, {"a": {}}, {"points": [[0, 0]]}, {"points": []}, {"points": "a"}, {"chain": 1},
    {"points": [[0, 0]], "b": 1}, {"chain": "0" * 32}, {"mask": [1, 0], "values": [0, 0]},
    {"mask": [], "values": []}, {str(i): i for i in range(150)}, nest(50), nest(1023), nest(1100),
]  # fmt: skip
ODD: list[Any] = [*map(Raw, TOKENS), *SCALARS, *NESTED]


def dumps(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{dumps(k)}:{dumps(v)}" for k, v in value.items()) + "}"
    return f"[{','.join(map(dumps, value))}]" if isinstance(value, list) else json.dumps(value)


def list_items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def list_paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    return [here, *(p for key, part in list_items(value) for p in list_paths(part, (*here, key)))]


def mutate(value: Any, path: tuple[Any, ...], rng: Rng) -> Any:
    """Replace, remove or duplicate the part of a JSON value at a path."""
    if not path:
        wrapped = [value] if rng.random() < 0.5 else {rng.choice(["x", "points", "a"]): value}
        return choose(rng, rng.choice(ODD), wrapped)
    key, rest = path[0], path[1:]
    if rest or rng.random() < 0.8:
        new = mutate(value[key], rest, rng)
        if isinstance(value, list):
            return [*value[:key], new, *value[key + 1 :]]
        return {**value, key: new}
    if isinstance(value, list):
        return value[:key] + value[key + 1 :] * rng.choice([1, 2])
    others = {name: part for name, part in value.items() if name != key}
    again = {Raw(json.dumps(key) + " "): rng.choice(ODD)}
    return rng.choice([others, {**others, key.upper(): value[key]}, {**value, **again}])


def make_valid(rng: Rng, chain: str) -> tuple[str, dict[str, Any]]:
    """Return a path and a valid body."""
    rows = [[round(rng.gauss(0, 1), 3) for _ in range(D)] for _ in range(rng.randint(1, 3))]
    common = {"x": rows, "model": "spiral-dae", "sigma": rng.choice([0.1, 0.2, 0.5])}
    about = {"rank": 2, "estimator": "inverted", "include": ["mean", "covariance"]}
    walk = {
        "walkers": len(rows), "steps": rng.randint(1, 4), "thin": rng.choice([1, 2]), "burn_in": 1,
        "kernel": rng.choice(["gibbs", "hidden", "moment"]), "scale": rng.choice([1, [0.5, 1]]),
        "floor": 0.01, "seed": rng.randint(0, 99), "emit": "mean", "model": "spiral-dae",
        "start": rng.choice(["data", "noise", {"points": rows}, {"chain": chain}]),
        "stream": rng.random() < 0.2,
    }  # fmt: skip
    clamp = {"mask": [1, 0], "values": rng.choice([[0.1, 0.2], rows])}
    fork = {"seed": 3, "scale": [1.0, 0.5], "floor": 0.1, "kernel": "moment", "from_step": 0}
    return rng.choice([
        ("/reconstruct", common),
        ("/moments", {**common, **about}),
        ("/sample", walk),
        ("/sample", {**walk, "clamp": clamp}),
        ("/sample", {"chain": chain, "steps": 1, "from_step": rng.choice([None, 0, 3])}),
        (f"/chains/{chain}/fork", fork),
    ])  # fmt: skip


def corrupt_text(text: str, rng: Rng) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return rng.choice([
        data[: rng.randrange(len(data) + 1)],
        corrupt(data, rng),
        b"\xef\xbb\xbf" + data,
        text.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "utf-7"]), "replace"),
        data + rng.choice([b"\0", b"}", b" ", b"\n{}", b"null", b"\xff", b"//"]),
        rng.choice([b" ", b"\0", b"\x1f\x8b"]) + data,
        gzip.compress(data),
        b"",
    ])  # fmt: skip


def make_json_request(rng: Rng, chain: str) -> Request:
    path, value = make_valid(rng, chain)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        value = mutate(value, rng.choice(list_paths(value)), rng)
    text = dumps(value)
    body = corrupt_text(text, rng) if rng.random() < 0.2 else text.encode("utf-8", "surrogatepass")
    headers = {"content-type": "application/json", "accept": choose(rng, *FORMATS)}
    if rng.random() < 0.05:
        kinds = ["application/json; charset=utf-16", "text/plain", NPY, "", "é"]
        headers["content-type"] = rng.choice(kinds)
    if rng.random() < 0.05:
        headers["content-encoding"] = rng.choice(["gzip", "identity", "br", ""])
    if rng.random() < 0.1:
        headers["idempotency-key"] = rng.choice(["a", "é", "k" * 201, str(rng.random())])
    return Request(path, body, headers)


# .npy

DESCR = [
    "'<f8'", "'<f4'", "'>f8'", "'<f2'", "'|u1'", "'<i8'", "'<f16'", "'<c16'", "'|O'", "'|S5'",
    "'<U3'", "'|V8'", "'<M8[ns]'", "'<m8'", "'|b1'", "'f'", "'d'", "[('a', '<f4')]", "'<f7'",
    "[('a', '|O')]", "('<f4', (2,))", "('<f8', (99999999,))", "'<f8,<f8'", "'|V2147483647'",
    "'|S99999999999'", "''", "None", "1", "object", "'<f8' '<f8'", "b'<f8'", "'\\ud800'",
    "[" * 90 + "]" * 90, "[('a', '<f8')] * 9", "'<f\\x00'",
]  # fmt: skip
SHAPE = [
    "(2, 2)", "(2,2,)", "()", "(2,)", "(4, 1)", "(0, 2)", "(2, 0)", "(0, 0)", "(-1, 2)",
    "(-2, -2)", "(1, 2, 2)", "(1000000000, 1000000)", "(9223372036854775807, 2)", "(True, 4)",
    "(4294967296, 4294967296)", "(18446744073709551616, 2)", "(2.0, 2)", "('2', 2)", "(1e9, 1)",
    "(True, True)", "(2L, 2L)", "[2, 2]", "None", "2", "(2, 2", "(" * 300, "-" * 3000 + "2",
    "(2,)*2", "(2, 2) if 1 else 0", "{2, 2}", "(" + "1," * 100 + ")", "9" * 5000,
]  # fmt: skip
ORDER = ["False", "True", "True", "0", "1", "None", "'a'", "[]"]
FIELDS = {"'descr'": DESCR, "'fortran_order'": ORDER, "'shape'": SHAPE}
STRANGE = ["'a': 1", "'shape': (1, 4)", "**{}", "__import__('os'): 1", "#", "'\\N{DASH}': 1"]


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def __reduce__(self) -> Any:
        return Path.touch, (self.where,)


def make_npy(rng: Rng, trap: Path) -> bytes:
    """Assemble an .npy file from parts that may be wrong."""
    fields = [f"{name}: {choose(rng, *kinds)}" for name, kinds in FIELDS.items()]
    if rng.random() < 0.05:
        fields[rng.randrange(3)] = rng.choice(STRANGE)
    header = "{" + ", ".join(fields) + choose(rng, ", }", "}", "", "} ", "}#", "};1")
    text = (header + choose(rng, "\n", "", " " * 50 + "\n")).encode("latin1", "replace")
    version = choose(rng, (1, 0), (2, 0), (2, 0), (2, 0), (3, 0), (0, 0), (1, 1), (255, 255))
    width = 2 if version[0] == 1 else 4
    size = max(0, len(text) + choose(rng, 0, 0, 0, 1, -1, 100, 60_000))
    x = np.array([rng.gauss(0, 1) for _ in range(4)])
    far = np.array([0, 1e300, -np.inf, 5e-324])
    data: bytes = choose(
        rng, x.tobytes(), x.astype("<f4").tobytes(), far.tobytes(), np.full(4, np.nan).tobytes(),
        b"", bytes(rng.randrange(99)), pickle.dumps(Touch(trap)),
    )  # fmt: skip
    return b"\x93NUMPY" + bytes(version) + size.to_bytes(4, "little")[:width] + text + data


def make_npy_request(rng: Rng, trap: Path) -> Request:
    stream = io.BytesIO()
    np.save(stream, np.array([[rng.gauss(0, 1)] * D], rng.choice(["<f4", "<f8", "<i4"])))
    body = make_npy(rng, trap) if rng.random() < 0.6 else corrupt(stream.getvalue(), rng)
    if rng.random() < 0.05:
        cut = body[: rng.randrange(len(body))]
        body = rng.choice([cut, pickle.dumps(Touch(trap)), b"PK\x03\x04" + body])
    path = rng.choice([
        "/reconstruct", "/reconstruct?sigma=0.3", "/moments?rank=1", "/moments?include=covariance",
        "/sample?steps=1", "/sample?steps=2&walkers=2&stream=true",
    ])  # fmt: skip
    return Request(path, body, {"content-type": NPY, "accept": choose(rng, *FORMATS)})


# base64, and numbers in a query

WORDS = ["", "1_0", "١", "0x1", "1e999", "nan", "-", "1 ", "é"]
EXTRA = [
    "rank=0", "rank=1e3", "rank=%00", "include=", "include=mean,,", "include=score", "estimator=a",
    "walker=1", "sigma=nan", "sigma=0.3", "chain=a", "x=", "x_b64", "&&", "%ff=%ff", "a[]=1", "=",
    "rank=" + "9" * 5000, "model=%F0%9D%94%98", "rank=1&rank=2", "include=" + "mean," * 300,
]  # fmt: skip


def make_base64_request(rng: Rng, chain: str) -> Request:
    count = choose(rng, D, 0, 1, 3, 900)
    numbers = [choose(rng, rng.gauss(0, 1), np.nan, np.inf, 1e38, 1e-44) for _ in range(count)]
    raw = np.array(numbers, "<f4").tobytes()
    if rng.random() < 0.2:
        raw = corrupt(raw, rng)
    encode = choose(rng, base64.urlsafe_b64encode, base64.b64encode, base64.b32encode)
    text = encode(raw).decode()
    if rng.random() < 0.3:
        text = corrupt(text.encode(), rng).decode("latin1")
    bare = text.rstrip("=")
    text = choose(
        rng, text, bare, f"{text}=", f"={text}", f"{text}\n", f" {text}", f"{text},{text}"
    )
    name = choose(rng, "x_b64", "x")
    if name == "x" and rng.random() < 0.8:
        words = [*map(repr, map(float, numbers[:9])), *rng.sample(WORDS, rng.choice([0, 1]))]
        text = ",".join(words)
    query = [f"{name}={quote(text, safe=choose(rng, '', ',+/='))}"]
    query += rng.sample([*EXTRA, f"chain={chain}"], rng.choice([0, 0, 0, 1, 2]))
    return Request(f"/moments?{'&'.join(query)}", None, {"accept": choose(rng, *FORMATS)})


def make_request(kind: str, rng: Rng, chain: str, trap: Path) -> Request:
    if kind == "npy":
        return make_npy_request(rng, trap)
    return make_json_request(rng, chain) if kind == "json" else make_base64_request(rng, chain)


def check_response(status: int, kind: str, body: bytes) -> None:
    """Check that a response is a 2xx, or a 4xx problem with a reason."""
    if 200 <= status < 300:
        return
    assert 400 <= status < 500, f"{status} {body[:300]!r}"
    assert kind == "application/problem+json", f"{status} {kind}"
    problem = json.loads(body)
    assert problem["status"] == status and problem["error"] == problem["detail"], problem
    assert problem["detail"].endswith(".") and 10 < len(problem["detail"]) < 1000, problem
    assert " at 0x" not in problem["detail"], problem  # the repr of a Python object


class Client:
    """One connection, which the service may close after a 413 only."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = http.client.HTTPConnection(*address, timeout=30)
        self.statuses: Counter[int] = Counter()
        self._expected = b""

    def send(self, request: Request) -> tuple[int, str, bytes]:
        headers: Any = {name: value.encode("latin1") for name, value in request.headers.items()}
        method = "GET" if request.body is None else "POST"
        self.connection.request(method, request.path, request.body, headers)
        response = self.connection.getresponse()
        body = response.read()
        assert not response.will_close or response.status == 413, "the connection was closed"
        return response.status, response.headers.get("content-type", ""), body

    def check(self, request: Request) -> None:
        status, kind, body = self.send(request)
        self.statuses[status] += 1
        check_response(status, kind, body)

    def check_valid(self) -> None:
        """Check that a valid request still gets the same response."""
        status, _, body = self.send(Request("/moments?x=0.1,0.2"))
        assert status == 200 and body == (self._expected or body)
        self._expected = body


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_almost_valid_bodies_get_a_result_or_a_reason(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    service, trap = start(MODELS, **SMALL), tmp_path / "unpickled"
    chain = service.http.post("/sample", json={"walkers": 2, "steps": 3}).json()["chain"]
    process = psutil.Process(service.process.pid)

    def run_part(part: int) -> tuple[Counter[int], int]:
        rng, client, peak = Rng(f"{SEED} {part}"), Client(service.address), 0
        for i in range(CASES // THREADS):
            kind = rng.choice(["json", "json", "npy", "base64"])
            request = make_request(kind, rng, chain, trap)
            try:
                client.check(request)
                if i % CHECK_EVERY == 0:
                    client.check_valid()
                    peak = max(peak, process.memory_info().rss)
            except Exception as error:
                error.add_note(f"seed {SEED}, part {part}, case {i}: {request}"[:5000])
                raise
        client.connection.close()
        return client.statuses, peak

    before = process.memory_info().rss
    with ThreadPoolExecutor(THREADS) as pool:
        counts, peaks = zip(*pool.map(run_part, range(THREADS)), strict=True)
    statuses = sum(counts, Counter[int]())
    print(f"\n{dict(statuses)}, memory grew by {(max(peaks) - before) / 1e6:.0f} MB")
    assert statuses.total() == CASES // THREADS * THREADS
    assert statuses[200] > CASES / 20 and statuses[422] > CASES / 2  # both are covered
    assert max(peaks) < before + 100e6
    assert not trap.exists()
    assert not [line for line in service.log() if "exception" in line or line["level"] == "error"]


MANY = 400_000
FULL = {
    "numbers next to a long string": ("/reconstruct", {"x": [["a" * MANY, *[0] * MANY]]}),
    "unknown fields": ("/reconstruct", {"x": [[0, 0]], **{str(i): 0 for i in range(MANY)}}),
    "unknown nested fields": ("/sample", {"start": {str(i): 0 for i in range(MANY)}}),
    "unknown fields to include": ("/moments", {"x": [[0, 0]], "include": [0] * MANY}),
    "a mask of strings": ("/sample", {"clamp": {"mask": ["a"] * MANY, "values": [0, 0]}}),
    "scales of strings": ("/sample", {"scale": ["a"] * MANY}),
    "a list for a name": ("/sample", {"model": [[0] * 1000] * (MANY // 1000)}),
}


@pytest.mark.parametrize("case", FULL)
def test_a_body_full_of_faults_is_refused_quickly(roomy: Any, case: str) -> None:
    """Megabytes of faults must not become gigabytes of messages."""
    path, body = FULL[case]
    process, content = psutil.Process(roomy.process.pid), json.dumps(body)
    before, start = process.memory_info().rss, time.monotonic()
    response = roomy.http.post(path, content=content, headers={"content-type": "application/json"})
    assert time.monotonic() - start < 10  # a second on an idle machine
    check_response(response.status_code, response.headers["content-type"], response.content)
    assert response.status_code == 422
    assert process.memory_info().rss < before + 300e6


@pytest.fixture(scope="module")
def roomy(start: Callable[..., Any]) -> Any:
    return start(MODELS, default_model="digits-dae")
