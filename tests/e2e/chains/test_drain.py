"""The end of a process: readiness goes first, streams say how to go on, calls are answered, and the
next start has every chain. No word is lost, and nothing is left running.
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

SLACK = 5.0  # seconds that a loaded machine may add to an end
ASKED = {"walkers": 8, "burn_in": 7, "thin": 3}


class Ending:
    """A service that is told to end, and what is seen of it until it has."""

    def __init__(self, service: Any, number: signal.Signals = signal.SIGTERM) -> None:
        self.service = service
        self._others = psutil.Process(service.process.pid).children(recursive=True)
        assert any("valkey" in other.name() for other in self._others)
        self._began = time.monotonic()
        service.process.send_signal(number)

    def seen(self, path: str) -> int:
        with httpx.Client(base_url=self.service.http.base_url, timeout=10) as http:
            return http.get(path).status_code

    def over(self, within: float) -> None:
        assert self.service.process.wait(timeout=60) == 0
        assert time.monotonic() - self._began < within + SLACK
        assert psutil.wait_procs(self._others, timeout=5)[1] == []
        lines = self.service.log()
        assert lines and not [line for line in lines if "exception" in line]


@pytest.fixture
def begin(start: Any, shipped: Path, tmp_path: Path) -> Iterator[Any]:
    """Starts on one and the same folder, one after another."""
    begun = []

    def begin(**settings: Any) -> Any:
        begun.append(start(shipped, store_folder=tmp_path, lease_seconds=1, **settings))
        return begun[-1]

    yield begin
    if begun[-1].process.poll() is None:
        begun[-1].end()


class Reader(threading.Thread):
    """Reads a stream to its end beside others."""

    def __init__(self, service: Any, stream: Any, kind: str, seed: int, steps: int) -> None:
        super().__init__()
        self._open = stream(service.http, kind, seed=seed, steps=steps, **ASKED)
        self.seed, self.kind, self.samples = seed, kind, list[Any]()
        self.tail: Any = None
        self.start()

    def run(self) -> None:
        with self._open as stream:
            self.chain = stream.chain
            for _, x in stream:
                self.samples.append(x)
            self.tail = stream.tail


def resumed(http: httpx.Client, reader: Reader, steps: int) -> dict[str, Any]:
    """What a stream said about its rest; of arrays it must be known."""
    last = reader.tail["step"]
    if reader.kind != NPY:
        assert set(reader.tail) == {"done", "step", "resume"}
        asked = reader.tail["resume"]
        assert set(asked) == {"chain", "from_step", "steps"}
    else:
        assert set(reader.tail) == {"done", "step"}
        at = 7 + 3 * len(reader.samples) if reader.samples else 0
        asked = {"chain": reader.chain, "from_step": at, "steps": steps + 7 - max(at, 7)}
    assert asked["from_step"] <= last < 7 + steps and reader.tail["done"] is False
    assert http.get(f"/chains/{reader.chain}").json()["step"] == last
    answer = http.post("/sample", json=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_with_what_goes_on_at_the_next_start(
    begin: Any, stream: Any, walked: Any, wait_for: Any, number: signal.Signals
) -> None:
    service, steps = begin(drain_seconds=1.5, grace_seconds=5), 2500
    readers = [Reader(service, stream, STREAMS[i], i, steps) for i in range(3)]
    wait_for(lambda: all(len(reader.samples) > 3 for reader in readers))
    ending = Ending(service, number)
    if number == signal.SIGTERM:
        assert (ending.seen("/readyz"), ending.seen("/healthz")) == (503, 200)
    for reader in readers:
        reader.join(10)
    if number == signal.SIGTERM:  # the streams are over, and it is still there to be asked
        assert (ending.seen("/readyz"), ending.seen("/healthz")) == (503, 200)
        refused = service.http.post("/sample", json={})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
    ending.over(within=1.5 + 5)
    http = begin(drain_seconds=0).http
    for reader in readers:
        rest = resumed(http, reader, steps)
        samples = np.float32([*reader.samples, *rest["samples"]])
        assert samples.tobytes() == walked(reader.seed, 8, 7 + steps)[9::3].tobytes()


def test_a_stream_goes_on_as_it_was_asked_for(begin: Any, stream: Any, walked: Any) -> None:
    """With a thin and an emission that are the call's and not the chain's."""
    service = begin(drain_seconds=0)
    first = service.http.post("/sample", json={**ASKED, "seed": 4, "steps": 9}).json()
    asked = {"chain": first["chain"], "steps": 1500, "thin": 1, "emit": "noisy"}
    with stream(service.http, SSE, **asked) as cut:
        samples = iter(cut)
        got = [next(samples)]
        ending = Ending(service)
        got += samples
    ending.over(within=10)
    http = begin(drain_seconds=0).http
    rest = http.post("/sample", json=cut.tail["resume"]).json()
    assert rest["thin"] == 1 and rest["emit"] == "noisy"
    assert [step for step, _ in got] == list(range(17, rest["from_step"] + 1))
    assert rest["shape"][0] + len(got) == 1500 and rest["step"] == 1516


@contextlib.contextmanager
def asking(service: Any, asked: dict[str, Any]) -> Iterator[Any]:
    """A call beside us, which has begun to walk."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(service.http.post, "/sample", json=asked)
        while "localmoments_chains_running 1.0" not in service.http.get("/metrics").text:
            assert not future.done()
        yield future


def test_a_call_that_is_soon_done_is_answered(begin: Any, walked: Any) -> None:
    service = begin(drain_seconds=0, grace_seconds=20)
    with asking(service, {**ASKED, "seed": 5, "steps": 3000}) as call:
        ending = Ending(service)
        answer = call.result()
    ending.over(within=20)
    assert answer.status_code == 200
    samples = np.float32(answer.json()["samples"])
    assert samples.tobytes() == walked(5, 8, 3007)[9::3].tobytes()


def test_a_call_that_takes_too_long_is_kept_for_the_next_start(begin: Any, walked: Any) -> None:
    service, steps = begin(drain_seconds=0, grace_seconds=1), 7000
    asked = {**ASKED, "seed": 5, "steps": steps, "thin": 100}
    with asking(service, asked) as call:
        ending = Ending(service)
        answer = call.result()
    ending.over(within=1)
    problem = answer.json()
    assert answer.status_code == 503 and "about to end" in problem["detail"]
    assert 0 < problem["step"] < steps and int(answer.headers["retry-after"]) >= 1
    http = begin(drain_seconds=0).http
    assert http.get(f"/chains/{problem['chain']}").json()["step"] == problem["step"]
    again = {"chain": problem["chain"], "from_step": 0, "steps": steps}
    samples = np.float32(http.post("/sample", json=again).json()["samples"])
    assert samples.tobytes() == walked(5, 8, 7 + steps)[106::100].tobytes()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_does_not_read_does_not_hold_it_up(
    begin: Any, stream: Any, settled: Any, number: signal.Signals
) -> None:
    service = begin(drain_seconds=0, grace_seconds=1)
    asked = {"seed": 1, "walkers": 512, "steps": 3900, "thin": 1}
    with stream(service.http, NDJSON, **asked) as slow:
        got = len(list(itertools.islice(slow, 3)))
        settled(service.http)
        Ending(service, number).over(within=1)
    http = begin(drain_seconds=0).http
    stands = http.get(f"/chains/{slow.chain}").json()
    assert got <= stands["step"] < 3900 and stands["busy"] is False
