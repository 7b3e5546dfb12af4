"""A chain's promises, on real processes: the same samples bit for bit, none lost and none twice,
however the chain is cut into calls, wherever it walks, whoever leaves or is killed meanwhile.
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
ASKED = {"model": "digits-dae", "seed": SEED, "walkers": WALKERS, "burn_in": BURN_IN, "thin": THIN}


@pytest.fixture(scope="module")
def pair(make_store: Any, make_replicas: Any) -> Any:
    """Two replicas on one store."""
    return make_replicas(2, redis_url=make_store().url, lease_seconds=1)


@pytest.fixture
def caller(make_caller: Any) -> Any:
    return make_caller(STEPS, **ASKED)


@pytest.fixture
def is_whole(walked: Any) -> Any:
    """Says whether a caller has every sample of the uninterrupted chain, once and to the bit."""

    def check(caller: Any) -> bool:
        kept = list(range(BURN_IN + THIN, BURN_IN + STEPS + 1, THIN))
        expected = walked(SEED, WALKERS, BURN_IN + STEPS)[np.array(kept) - 1]
        assert caller.steps == kept
        return bool(np.array(caller.samples).tobytes() == expected.tobytes())

    return check


def uneven(rng: random.Random, parts: int) -> list[int]:
    """So many numbers that add up to all steps."""
    cuts = [0, *sorted(rng.sample(range(1, STEPS), parts - 1)), STEPS]
    return [b - a for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize("kind", [JSON, NPY])
def test_one_call_is_the_engines_own_chain(
    pair: Any, caller: Any, is_whole: Any, kind: str
) -> None:
    caller.take(caller.whole(pair[0].http, kind=kind))
    assert is_whole(caller)


@pytest.mark.parametrize("replicas", [1, 2])
def test_37_uneven_calls_are_one(pair: Any, caller: Any, is_whole: Any, replicas: int) -> None:
    for number, steps in enumerate(uneven(random.Random(37), 37)):
        http = pair[number % replicas].http
        caller.take(caller.whole(http, steps, (JSON, NPY)[number // 2 % 2]))
    assert is_whole(caller) and caller.refused == 0


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_is_one_call(pair: Any, caller: Any, is_whole: Any, kind: str) -> None:
    assert len(list(caller.follow(pair[0].http, kind))) == 400
    assert is_whole(caller)


@pytest.mark.parametrize("first", range(3))
def test_a_caller_that_loses_streams_loses_no_sample(
    pair: Any, caller: Any, is_whole: Any, first: int
) -> None:
    rng, caller.in_hurry = random.Random(first), True
    kinds = [STREAMS[(first + number) % 3] for number in range(12)]
    for number, kind in enumerate(kinds):
        following = caller.follow(pair[number].http, kind)
        stream = next(itertools.islice(following, rng.randrange(25), None))
        if rng.random() < 0.5:
            stream.reset()
        following.close()
        assert caller.left > 0
    list(caller.follow(pair[0].http, STREAMS[first]))
    assert is_whole(caller)


def killed_mid_stream(replicas: Any, number: int, caller: Any, rng: random.Random) -> bool:
    """A stream whose replica is killed while it is read; whether that cut it off."""
    after, pause = rng.randrange(30), rng.uniform(0, 0.02)
    try:
        for count, _ in enumerate(caller.follow(replicas[number].http, STREAMS[number % 3])):
            if count == after:
                threading.Timer(pause, replicas.kill, [number]).start()
    except (httpx.TransportError, ValueError):  # ValueError: half an array
        return True
    return False


def killed_mid_call(replicas: Any, number: int, caller: Any, rng: random.Random, steps: int) -> Any:
    """A call whose replica is killed meanwhile; its answer, or None if it did not come before."""
    service = replicas[number]
    killing = threading.Timer(rng.uniform(0, 0.12), replicas.kill, [number])
    killing.start()
    try:
        return caller.whole(service.http, steps)
    except httpx.TransportError:
        return None
    finally:
        killing.join()


@pytest.mark.slow
def test_kill_9_during_streams_loses_no_sample(pair: Any, make_caller: Any, is_whole: Any) -> None:
    rng, cuts, caller = random.Random(9), 0, make_caller(STEPS, **ASKED)
    for number in itertools.count():
        if caller.left and cuts < 8:
            cuts += killed_mid_stream(pair, number, caller, rng)
        elif caller.left:
            list(caller.follow(pair[number].http, NDJSON))
        else:
            assert is_whole(caller)
            caller = make_caller(STEPS, **ASKED)  # it got through too soon
            if cuts >= 8:
                break


@pytest.mark.slow
def test_kill_9_during_whole_calls_loses_no_sample(pair: Any, caller: Any, is_whole: Any) -> None:
    rng, cut = random.Random(7), 0
    for number, steps in enumerate(uneven(rng, 8)):
        answer = killed_mid_call(pair, number, caller, rng, steps)
        cut += answer is None
        if answer is None or rng.random() < 0.5:  # or it got lost elsewhere
            answer = caller.whole(pair[number + 1].http, steps)
        caller.take(answer)
    assert is_whole(caller) and cut > 0


@pytest.mark.slow
def test_kill_9_of_a_service_with_its_own_store_loses_no_sample(
    make_replicas: Any, caller: Any, is_whole: Any, tmp_path: Path
) -> None:
    alone, rng = make_replicas(1, store_folder=tmp_path, lease_seconds=0.5), random.Random(3)
    for number in range(4):
        if number % 2:
            killed_mid_stream(alone, number, caller, rng)
        else:
            answer = killed_mid_call(alone, number, caller, rng, 150)
            caller.take(answer or caller.whole(alone[0].http, 150))
    list(caller.follow(alone[0].http, SSE))
    assert is_whole(caller)


@pytest.mark.parametrize("number", range(2))
def test_a_request_with_a_key_survives_its_replicas(
    pair: Any, make_caller: Any, walked: Any, number: int
) -> None:
    """Killed at some moment of the call, and killed when the answer is on its way."""
    caller, rng = make_caller(400, walkers=3, burn_in=0, thin=1), random.Random(number)
    first = killed_mid_call(pair, 0, caller, rng, 400)
    second = caller.whole(pair[1].http)
    pair.kill(1)
    third = caller.whole(pair[0].http)
    bodies = [answer.json() for answer in (first, second, third) if answer]
    assert all(body == bodies[-1] for body in bodies)
    caller.take(third)
    assert caller.steps == list(range(1, 401))
    assert np.array_equal(np.float32(caller.samples), walked(bodies[-1]["seed"], 3, 400))
    assert pair[0].http.get(f"/chains/{caller.chain}").json()["step"] == 400


class Writers:
    """Two at once on one chain."""

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

    def write(self, pause: float = 0.0, **asked: Any) -> list[httpx.Response]:
        """At the same moment, or the second a little later."""
        return list(self._pool.map(self._write, self._clients, (0, pause), (asked, asked)))

    def _write(self, client: httpx.Client, pause: float, asked: dict[str, Any]) -> httpx.Response:
        self._both.wait()
        time.sleep(pause)
        return client.post("/sample", json=asked)


@pytest.fixture(params=[False, True], ids=["one replica", "two replicas"])
def writers(pair: Any, request: pytest.FixtureRequest) -> Iterator[Writers]:
    with Writers(pair, request.param) as writers:
        yield writers


def test_of_two_writers_one_moves_the_chain(pair: Any, writers: Writers, walked: Any) -> None:
    rng, http, busy, given = random.Random(5), pair[0].http, 0, []
    made = http.post("/sample", json={"seed": 5, "walkers": 4, "steps": 1, "thin": 1}).json()
    chain, step = made["chain"], 1
    for number in range(100):
        k, pause = rng.randrange(4, 16), rng.uniform(0, 0.01) * (number % 2)
        answers = writers.write(pause, chain=chain, from_step=step, steps=k)
        done = [answer.json() for answer in answers if answer.status_code == 200]
        for answer in answers:
            if answer.status_code != 200:
                assert answer.status_code == 409 and "busy-chain" in answer.json()["type"]
                assert answer.headers["retry-after"] == "1"
                busy += 1
        assert done and all(body == done[0] for body in done)
        step += k
        assert http.get(f"/chains/{chain}").json()["step"] == step == done[0]["step"]
        given += done[0]["samples"]
    assert np.array_equal(np.float32(given), walked(5, 4, step)[1:]) and busy > 20


def test_a_writer_that_slept_through_its_lease_moves_nothing(
    pair: Any, make_caller: Any, stream: Any, walked: Any
) -> None:
    asked = {"seed": 7, "walkers": 4, "burn_in": 0, "thin": 1}
    caller, asleep = make_caller(300, **asked), pair[0].process
    with stream(pair[0].http, NDJSON, **asked, steps=400_000) as overslept:
        samples = iter(overslept)
        got = [next(samples)]
        asleep.send_signal(signal.SIGSTOP)
        try:
            caller.chain = overslept.chain
            caller.take(caller.whole(pair[1].http, 300))
        finally:
            asleep.send_signal(signal.SIGCONT)
        got += samples
    stands = pair[1].http.get(f"/chains/{caller.chain}").json()
    assert overslept.tail["error"]["status"] == 409 and "taken over" in str(overslept.tail)
    assert stands["step"] == max(300, overslept.tail["step"])
    assert [step for step, _ in got] == list(range(1, len(got) + 1))
    for given in (caller.samples, [x for _, x in got]):
        assert np.array_equal(np.float32(given), walked(7, 4, len(given)))


def test_writers_that_name_no_step_share_the_chain(
    pair: Any, writers: Writers, walked: Any
) -> None:
    http = pair[0].http
    made = http.post("/sample", json={"seed": 6, "walkers": 4, "steps": 1, "thin": 1}).json()
    calls = [made]
    for k in range(1, 51):
        answers = writers.write(chain=made["chain"], steps=k % 9 + 1)
        assert {answer.status_code for answer in answers} <= {200, 409}
        calls += [answer.json() for answer in answers if answer.status_code == 200]
    calls.sort(key=lambda call: call["from_step"])
    assert all(a["step"] == b["from_step"] for a, b in itertools.pairwise(calls))
    last = calls[-1]["step"]
    assert http.get(f"/chains/{made['chain']}").json()["step"] == last
    samples = [sample for call in calls for sample in call["samples"]]
    assert np.array_equal(np.float32(samples), walked(6, 4, last))


def test_a_chain_among_63_others_is_the_chain_alone(pair: Any, walked: Any) -> None:
    seen, running = asyncio.run(among_others(str(pair[0].http.base_url)))
    assert running >= 60
    for (seed, walkers), samples in seen.items():
        assert samples and np.array_equal(
            np.float32(samples), walked(seed, walkers, len(samples))
        ), seed


Seen = dict[tuple[int, int], list[Any]]


async def among_others(url: str) -> tuple[Seen, int]:
    """One chain in one call while others walk: what each gave, and how many walked at once."""
    seen: Seen = {(seed, seed % 16 + 1): [] for seed in range(64)}
    over = asyncio.Event()
    limits = httpx.Limits(max_connections=100)
    async with (
        httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http,
        asyncio.TaskGroup() as others,
    ):
        for who in list(seen)[:63]:
            others.create_task(goes_on(http, *who, seen[who], over))
        most = 0
        while most < 60:
            most = max(most, await running(http))
        asked = {"seed": 63, "walkers": 16, "steps": 60, "thin": 1}
        seen[63, 16] += (await http.post("/sample", json=asked)).json()["samples"]
        over.set()
    return seen, most


async def goes_on(
    http: httpx.AsyncClient, seed: int, walkers: int, samples: list[Any], over: asyncio.Event
) -> None:
    """A chain in short calls, and for every third seed in streams, until it is over."""
    asked: dict[str, Any] = {"seed": seed, "walkers": walkers, "steps": 20, "thin": 1}
    while not over.is_set():
        if seed % 3:
            answer = await http.post("/sample", json=asked)
            assert answer.status_code == 200, answer.text
            body = answer.json()
            samples += body["samples"]
        else:
            answer = await http.post("/sample", json=asked, headers={"accept": NDJSON})
            body, *lines, _ = map(json.loads, answer.text.splitlines())
            samples += [line["x"] for line in lines]
        asked = {"chain": body["chain"], "from_step": body["step"], "steps": 20}


async def running(http: httpx.AsyncClient) -> int:
    lines = (await http.get("/metrics")).text.splitlines()
    [line] = [line for line in lines if line.startswith("localmoments_chains_running ")]
    return int(float(line.split()[1]))
