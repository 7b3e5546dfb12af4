"""The promises of a chain, on real processes: the same samples to the bit, each exactly once,
however the chain is cut into calls, at which replica it walks, and who disconnects or is killed.
"""

import asyncio
import itertools
import json
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

JSON, NPY = "application/json", "application/x-npy"
NDJSON, SSE = "application/x-ndjson", "text/event-stream"
STREAMS = (NDJSON, SSE, NPY)

SEED, WALKERS, BURN_IN, THIN, STEPS = 2026, 16, 35, 5, 2000
PARAMS = {"model": "digits-dae", "seed": SEED, "walkers": WALKERS, "burn_in": BURN_IN, "thin": THIN}


@pytest.fixture(scope="module")
def pair(make_store: Any, make_replicas: Any) -> Any:
    """Two replicas on one store."""
    return make_replicas(2, redis_url=make_store().url, lease_seconds=1)


@pytest.fixture
def caller(make_caller: Any) -> Any:
    return make_caller(STEPS, **PARAMS)


@pytest.fixture
def has_every_sample(reference_chain: Any) -> Any:
    """Check that a caller has every sample of the uninterrupted chain, once and to the bit."""

    def check(caller: Any) -> bool:
        kept = list(range(BURN_IN + THIN, BURN_IN + STEPS + 1, THIN))
        expected = reference_chain(SEED, WALKERS, BURN_IN + STEPS)[np.array(kept) - 1]
        assert caller.steps == kept
        return bool(np.array(caller.samples).tobytes() == expected.tobytes())

    return check


def split_unevenly(rng: random.Random, parts: int) -> list[int]:
    """Split STEPS into `parts` unequal numbers."""
    cuts = [0, *sorted(rng.sample(range(1, STEPS), parts - 1)), STEPS]
    return [b - a for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("kind", [JSON, NPY])
def test_one_call_returns_the_chain_that_the_library_walks(
    pair: Any, caller: Any, has_every_sample: Any, kind: str
) -> None:
    caller.take(caller.post(pair[0].http, kind=kind))
    assert has_every_sample(caller)


@pytest.mark.parametrize("replicas", [1, 2])
def test_37_uneven_calls_return_what_one_call_returns(
    pair: Any, caller: Any, has_every_sample: Any, replicas: int
) -> None:
    for number, steps in enumerate(split_unevenly(random.Random(37), 37)):
        http = pair[number % replicas].http
        caller.take(caller.post(http, steps, (JSON, NPY)[number // 2 % 2]))
    assert has_every_sample(caller) and caller.busy_replies == 0


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_returns_what_one_call_returns(
    pair: Any, caller: Any, has_every_sample: Any, kind: str
) -> None:
    assert len(list(caller.follow(pair[0].http, kind))) == 400
    assert has_every_sample(caller)


@pytest.mark.parametrize("first", range(3))
def test_a_caller_whose_streams_break_loses_no_sample(
    pair: Any, caller: Any, has_every_sample: Any, first: int
) -> None:
    rng, caller.is_impatient = random.Random(first), True
    kinds = [STREAMS[(first + number) % 3] for number in range(12)]
    for number, kind in enumerate(kinds):
        following = caller.follow(pair[number].http, kind)
        stream = next(itertools.islice(following, rng.randrange(25), None))
        if rng.random() < 0.5:
            stream.reset()
        following.close()
        assert caller.left > 0
    list(caller.follow(pair[0].http, STREAMS[first]))
    assert has_every_sample(caller)


def kill_mid_stream(replicas: Any, number: int, caller: Any, rng: random.Random) -> bool:
    """Kill a replica while its stream is read; return whether the stream broke."""
    after, pause = rng.randrange(30), rng.uniform(0, 0.02)
    try:
        for count, _ in enumerate(caller.follow(replicas[number].http, STREAMS[number % 3])):
            if count == after:
                threading.Timer(pause, replicas.kill, [number]).start()
    except (httpx.TransportError, ValueError):  # ValueError: an incomplete array
        return True
    return False


def kill_mid_call(replicas: Any, number: int, caller: Any, rng: random.Random, steps: int) -> Any:
    """Kill a replica during a call; return the response, or None if there was none."""
    service = replicas[number]
    killing = threading.Timer(rng.uniform(0, 0.12), replicas.kill, [number])
    killing.start()
    try:
        return caller.post(service.http, steps)
    except httpx.TransportError:
        return None
    finally:
        killing.join()


@pytest.mark.slow
def test_kill_9_during_streams_loses_no_sample(
    pair: Any, make_caller: Any, has_every_sample: Any
) -> None:
    rng, cuts, caller = random.Random(9), 0, make_caller(STEPS, **PARAMS)
    for number in itertools.count():
        if caller.left and cuts < 8:
            cuts += kill_mid_stream(pair, number, caller, rng)
        elif caller.left:
            list(caller.follow(pair[number].http, NDJSON))
        else:
            assert has_every_sample(caller)
            caller = make_caller(STEPS, **PARAMS)  # it finished before enough streams broke
            if cuts >= 8:
                break


@pytest.mark.slow
def test_kill_9_during_whole_calls_loses_no_sample(
    pair: Any, caller: Any, has_every_sample: Any
) -> None:
    rng, cut = random.Random(7), 0
    for number, steps in enumerate(split_unevenly(rng, 8)):
        response = kill_mid_call(pair, number, caller, rng, steps)
        cut += response is None
        if response is None or rng.random() < 0.5:  # or pretend that the response was lost
            response = caller.post(pair[number + 1].http, steps)
        caller.take(response)
    assert has_every_sample(caller) and cut > 0


@pytest.mark.slow
def test_kill_9_of_a_service_with_the_embedded_store_loses_no_sample(
    make_replicas: Any, caller: Any, has_every_sample: Any, tmp_path: Path
) -> None:
    alone, rng = make_replicas(1, store_folder=tmp_path, lease_seconds=0.5), random.Random(3)
    for number in range(4):
        if number % 2:
            kill_mid_stream(alone, number, caller, rng)
        else:
            response = kill_mid_call(alone, number, caller, rng, 150)
            caller.take(response or caller.post(alone[0].http, 150))
    list(caller.follow(alone[0].http, SSE))
    assert has_every_sample(caller)


@pytest.mark.parametrize("number", range(2))
def test_a_request_with_an_idempotency_key_survives_its_replicas(
    pair: Any, make_caller: Any, reference_chain: Any, number: int
) -> None:
    """One replica is killed during the call, the other after it has sent the response."""
    caller, rng = make_caller(400, walkers=3, burn_in=0, thin=1), random.Random(number)
    first = kill_mid_call(pair, 0, caller, rng, 400)
    second = caller.post(pair[1].http)
    pair.kill(1)
    third = caller.post(pair[0].http)
    bodies = [response.json() for response in (first, second, third) if response]
    assert all(body == bodies[-1] for body in bodies)
    caller.take(third)
    assert caller.steps == list(range(1, 401))
    assert np.array_equal(np.float32(caller.samples), reference_chain(bodies[-1]["seed"], 3, 400))
    assert pair[0].http.get(f"/chains/{caller.chain}").json()["step"] == 400


class Writers:
    """Two clients that write to one chain at once."""

    def __init__(self, pair: Any, apart: bool) -> None:
        each = [pair[0], pair[int(apart)]]
        self._clients = [httpx.Client(base_url=s.http.base_url, timeout=30) for s in each]
        self._pool, self._both = ThreadPoolExecutor(2), threading.Barrier(2)

    def __enter__(self) -> "Writers":
        return self

    def __exit__(self, *what: object) -> None:
        self._pool.shutdown()
        for client in self._clients:
            client.close()

    def write(self, pause: float = 0.0, **params: Any) -> list[httpx.Response]:
        """Send both requests at once, or the second after a pause."""
        return list(self._pool.map(self._write, self._clients, (0, pause), (params, params)))

    def _write(self, client: httpx.Client, pause: float, params: dict[str, Any]) -> httpx.Response:
        self._both.wait()
        time.sleep(pause)
        return client.post("/sample", json=params)


@pytest.fixture(params=[False, True], ids=["one replica", "two replicas"])
def writers(pair: Any, request: pytest.FixtureRequest) -> Iterator[Writers]:
    with Writers(pair, request.param) as writers:
        yield writers


def test_of_two_writers_that_name_a_step_one_advances_the_chain(
    pair: Any, writers: Writers, reference_chain: Any
) -> None:
    rng, http, busy, given = random.Random(5), pair[0].http, 0, []
    made = http.post("/sample", json={"seed": 5, "walkers": 4, "steps": 1, "thin": 1}).json()
    chain, step = made["chain"], 1
    for number in range(100):
        k, pause = rng.randrange(4, 16), rng.uniform(0, 0.01) * (number % 2)
        responses = writers.write(pause, chain=chain, from_step=step, steps=k)
        done = [response.json() for response in responses if response.status_code == 200]
        for response in responses:
            if response.status_code != 200:
                assert response.status_code == 409 and "busy-chain" in response.json()["type"]
                assert response.headers["retry-after"] == "1"
                busy += 1
        assert done and all(body == done[0] for body in done)
        step += k
        assert http.get(f"/chains/{chain}").json()["step"] == step == done[0]["step"]
        given += done[0]["samples"]
    assert np.array_equal(np.float32(given), reference_chain(5, 4, step)[1:]) and busy > 20


def test_a_writer_that_was_paused_beyond_its_lease_cannot_commit(
    pair: Any, make_caller: Any, stream: Any, reference_chain: Any
) -> None:
    params = {"seed": 7, "walkers": 4, "burn_in": 0, "thin": 1}
    caller, paused_process = make_caller(300, **params), pair[0].process
    with stream(pair[0].http, NDJSON, **params, steps=400_000) as paused:
        samples = iter(paused)
        received = [next(samples)]
        paused_process.send_signal(signal.SIGSTOP)
        try:
            caller.chain = paused.chain
            caller.take(caller.post(pair[1].http, 300))
        finally:
            paused_process.send_signal(signal.SIGCONT)
        received += samples
    stands = pair[1].http.get(f"/chains/{caller.chain}").json()
    assert paused.tail["error"]["status"] == 409 and "taken over" in str(paused.tail)
    assert stands["step"] == max(300, paused.tail["step"])
    assert [step for step, _ in received] == list(range(1, len(received) + 1))
    for given in (caller.samples, [x for _, x in received]):
        assert np.array_equal(np.float32(given), reference_chain(7, 4, len(given)))


def test_writers_that_name_no_step_take_turns(
    pair: Any, writers: Writers, reference_chain: Any
) -> None:
    http = pair[0].http
    made = http.post("/sample", json={"seed": 6, "walkers": 4, "steps": 1, "thin": 1}).json()
    calls = [made]
    for k in range(1, 51):
        responses = writers.write(chain=made["chain"], steps=k % 9 + 1)
        assert {response.status_code for response in responses} <= {200, 409}
        calls += [response.json() for response in responses if response.status_code == 200]
    calls.sort(key=lambda call: call["from_step"])
    assert all(a["step"] == b["from_step"] for a, b in itertools.pairwise(calls))
    last = calls[-1]["step"]
    assert http.get(f"/chains/{made['chain']}").json()["step"] == last
    samples = [sample for call in calls for sample in call["samples"]]
    assert np.array_equal(np.float32(samples), reference_chain(6, 4, last))


def test_a_chain_walks_among_63_others_as_it_walks_alone(pair: Any, reference_chain: Any) -> None:
    seen, running = asyncio.run(walk_among_others(str(pair[0].http.base_url)))
    assert running >= 60
    for (seed, walkers), samples in seen.items():
        assert samples and np.array_equal(
            np.float32(samples), reference_chain(seed, walkers, len(samples))
        ), seed


Seen = dict[tuple[int, int], list[Any]]


async def walk_among_others(url: str) -> tuple[Seen, int]:
    """Walk 64 chains at once; return the samples of each, and how many walked at a time."""
    seen: Seen = {(seed, seed % 16 + 1): [] for seed in range(64)}
    over = asyncio.Event()
    limits = httpx.Limits(max_connections=100)
    async with (
        httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http,
        asyncio.TaskGroup() as others,
    ):
        for who in list(seen)[:63]:
            others.create_task(keep_walking(http, *who, seen[who], over))
        most = 0
        while most < 60:
            most = max(most, await count_running(http))
        params = {"seed": 63, "walkers": 16, "steps": 60, "thin": 1}
        seen[63, 16] += (await http.post("/sample", json=params)).json()["samples"]
        over.set()
    return seen, most


async def keep_walking(
    http: httpx.AsyncClient, seed: int, walkers: int, samples: list[Any], over: asyncio.Event
) -> None:
    """Walk a chain in short calls, or in streams for every third seed, until `over` is set."""
    params: dict[str, Any] = {"seed": seed, "walkers": walkers, "steps": 20, "thin": 1}
    while not over.is_set():
        if seed % 3:
            response = await http.post("/sample", json=params)
            assert response.status_code == 200, response.text
            body = response.json()
            samples += body["samples"]
        else:
            response = await http.post("/sample", json=params, headers={"accept": NDJSON})
            body, *lines, _ = map(json.loads, response.text.splitlines())
            samples += [line["x"] for line in lines]
        params = {"chain": body["chain"], "from_step": body["step"], "steps": 20}


async def count_running(http: httpx.AsyncClient) -> int:
    lines = (await http.get("/metrics")).text.splitlines()
    [line] = [line for line in lines if line.startswith("localmoments_chains_running ")]
    return int(float(line.split()[1]))
