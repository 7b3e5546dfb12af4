"""Shutting down: readiness goes first, streams say how to resume, calls are answered, and the next
process has every chain. No log line is lost, and no process is left running.
"""

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

NPY = "application/x-npy"
NDJSON, SSE = "application/x-ndjson", "text/event-stream"
STREAMS = (NDJSON, SSE, NPY)

SLACK = 5.0  # seconds that a loaded machine may add
PARAMS = {"walkers": 8, "burn_in": 7, "thin": 3}


class Shutdown:
    """A service after a signal, and what it does until it has stopped."""

    def __init__(self, service: Any, number: signal.Signals = signal.SIGTERM) -> None:
        self.service = service
        self._others = psutil.Process(service.process.pid).children(recursive=True)
        assert any("valkey" in other.name() for other in self._others)
        self._signalled = time.monotonic()
        service.process.send_signal(number)

    def get_status(self, path: str) -> int:
        with httpx.Client(base_url=self.service.http.base_url, timeout=10) as http:
            return http.get(path).status_code

    def check_finished(self, within: float) -> None:
        assert self.service.process.wait(timeout=60) == 0
        assert time.monotonic() - self._signalled < within + SLACK
        assert psutil.wait_procs(self._others, timeout=5)[1] == []
        lines = self.service.log()
        assert lines and not [line for line in lines if "exception" in line]


@pytest.fixture
def start_service(start: Any, shipped: Path, tmp_path: Path) -> Iterator[Any]:
    """Start services one after another on the same store folder."""
    started = []

    def start_service(**settings: Any) -> Any:
        started.append(start(shipped, store_folder=tmp_path, lease_seconds=1, **settings))
        return started[-1]

    yield start_service
    if started[-1].process.poll() is None:
        started[-1].end()


class Reader(threading.Thread):
    """Read a stream to its end on a thread."""

    def __init__(self, service: Any, stream: Any, kind: str, seed: int, steps: int) -> None:
        super().__init__()
        self._open = stream(service.http, kind, seed=seed, steps=steps, **PARAMS)
        self.seed, self.kind, self.samples = seed, kind, list[Any]()
        self.tail: Any = None
        self.start()

    def run(self) -> None:
        with self._open as stream:
            self.chain = stream.chain
            for _, x in stream:
                self.samples.append(x)
            self.tail = stream.tail


def resume(http: httpx.Client, reader: Reader, steps: int) -> dict[str, Any]:
    """Continue a stream with its resume request; a stream of arrays has none, so build it."""
    last = reader.tail["step"]
    if reader.kind != NPY:
        assert set(reader.tail) == {"done", "step", "resume"}
        params = reader.tail["resume"]
        assert set(params) == {"chain", "from_step", "steps"}
    else:
        assert set(reader.tail) == {"done", "step"}
        at = 7 + 3 * len(reader.samples) if reader.samples else 0
        params = {"chain": reader.chain, "from_step": at, "steps": steps + 7 - max(at, 7)}
    assert params["from_step"] <= last < 7 + steps and reader.tail["done"] is False
    assert http.get(f"/chains/{reader.chain}").json()["step"] == last
    response = http.post("/sample", json=params)
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_with_a_request_that_resumes_them_at_the_next_start(
    start_service: Any, stream: Any, reference_chain: Any, wait_for: Any, number: signal.Signals
) -> None:
    service, steps = start_service(drain_seconds=1.5, grace_seconds=5), 2500
    readers = [Reader(service, stream, STREAMS[i], i, steps) for i in range(3)]
    wait_for(lambda: all(len(reader.samples) > 3 for reader in readers))
    shutdown = Shutdown(service, number)
    if number == signal.SIGTERM:
        assert (shutdown.get_status("/readyz"), shutdown.get_status("/healthz")) == (503, 200)
    for reader in readers:
        reader.join(10)
    if number == signal.SIGTERM:  # the streams have ended, and the service still answers
        assert (shutdown.get_status("/readyz"), shutdown.get_status("/healthz")) == (503, 200)
        refused = service.http.post("/sample", json={})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
    shutdown.check_finished(within=1.5 + 5)
    http = start_service(drain_seconds=0).http
    for reader in readers:
        rest = resume(http, reader, steps)
        samples = np.float32([*reader.samples, *rest["samples"]])
        assert samples.tobytes() == reference_chain(reader.seed, 8, 7 + steps)[9::3].tobytes()


def test_a_stream_resumes_with_the_parameters_of_its_call(
    start_service: Any, stream: Any, reference_chain: Any
) -> None:
    """`thin` and `emit` of the call differ from those of the chain."""
    service = start_service(drain_seconds=0)
    first = service.http.post("/sample", json={**PARAMS, "seed": 4, "steps": 9}).json()
    params = {"chain": first["chain"], "steps": 1500, "thin": 1, "emit": "noisy"}
    with stream(service.http, SSE, **params) as cut:
        samples = iter(cut)
        received = [next(samples)]
        shutdown = Shutdown(service)
        received += samples
    shutdown.check_finished(within=10)
    http = start_service(drain_seconds=0).http
    rest = http.post("/sample", json=cut.tail["resume"]).json()
    assert rest["thin"] == 1 and rest["emit"] == "noisy"
    assert [step for step, _ in received] == list(range(17, rest["from_step"] + 1))
    assert rest["shape"][0] + len(received) == 1500 and rest["step"] == 1516


@contextlib.contextmanager
def call_in_background(service: Any, params: dict[str, Any]) -> Iterator[Any]:
    """Send a request on a thread and wait until its chain walks."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(service.http.post, "/sample", json=params)
        while "localmoments_chains_running 1.0" not in service.http.get("/metrics").text:
            assert not future.done()
        yield future


def test_a_call_that_finishes_within_the_grace_period_is_answered(
    start_service: Any, reference_chain: Any
) -> None:
    service = start_service(drain_seconds=0, grace_seconds=20)
    with call_in_background(service, {**PARAMS, "seed": 5, "steps": 3000}) as call:
        shutdown = Shutdown(service)
        response = call.result()
    shutdown.check_finished(within=20)
    assert response.status_code == 200
    samples = np.float32(response.json()["samples"])
    assert samples.tobytes() == reference_chain(5, 8, 3007)[9::3].tobytes()


def test_a_call_that_takes_too_long_stops_and_can_be_resumed_at_the_next_start(
    start_service: Any, reference_chain: Any
) -> None:
    service, steps = start_service(drain_seconds=0, grace_seconds=1), 7000
    params = {**PARAMS, "seed": 5, "steps": steps, "thin": 100}
    with call_in_background(service, params) as call:
        shutdown = Shutdown(service)
        response = call.result()
    shutdown.check_finished(within=1)
    problem = response.json()
    assert response.status_code == 503 and "shutting down" in problem["detail"]
    assert 0 < problem["step"] < steps and int(response.headers["retry-after"]) >= 1
    http = start_service(drain_seconds=0).http
    assert http.get(f"/chains/{problem['chain']}").json()["step"] == problem["step"]
    again = {"chain": problem["chain"], "from_step": 0, "steps": steps}
    samples = np.float32(http.post("/sample", json=again).json()["samples"])
    assert samples.tobytes() == reference_chain(5, 8, 7 + steps)[106::100].tobytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_client_that_does_not_read_does_not_delay_the_shutdown(
    start_service: Any, stream: Any, wait_until_idle: Any, number: signal.Signals
) -> None:
    service = start_service(drain_seconds=0, grace_seconds=1)
    params = {"seed": 1, "walkers": 512, "steps": 3900, "thin": 1}
    with stream(service.http, NDJSON, **params) as slow:
        received = len(list(itertools.islice(slow, 3)))
        wait_until_idle(service.http)
        Shutdown(service, number).check_finished(within=1)
    http = start_service(drain_seconds=0).http
    stands = http.get(f"/chains/{slow.chain}").json()
    assert received <= stands["step"] < 3900 and stands["busy"] is False
