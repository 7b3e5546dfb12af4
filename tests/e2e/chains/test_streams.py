"""Streams that do not end as they were meant to: somebody leaves, reads slowly, ends the chain,
asks for what cannot be, or the store dies (under whole calls too). The chain stays where it says.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import psutil
import pytest

NPY = "application/x-npy"
NDJSON, SSE = "application/x-ndjson", "text/event-stream"
STREAMS = (NDJSON, SSE, NPY)

LONG = {"seed": 1, "walkers": 4, "steps": 400_000, "thin": 1}  # minutes
WIDE = {"seed": 1, "walkers": 4096, "steps": 400, "thin": 400}  # many milliseconds a step


@pytest.fixture(scope="module")
def served(make_replicas: Any) -> Any:
    return make_replicas(1, lease_seconds=6)[0]


@pytest.fixture
def http(served: Any) -> Any:
    return served.http


@pytest.fixture
def row_steps(http: Any, walked_rows: Any) -> Any:
    """How much the service walked, whoever asked for it."""
    return lambda: walked_rows(http)


def looked(http: Any, chain: str) -> Any:
    answer = http.get(f"/chains/{chain}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def check_error(tail: Any, status: int, chain: str) -> None:
    assert set(tail) == {"error", "chain", "step"} and tail["chain"] == chain
    assert tail["error"]["status"] == status and tail["error"]["detail"].endswith(".")


@pytest.mark.parametrize("abruptly", [False, True])
@pytest.mark.parametrize("asked", [LONG, WIDE], ids=["long", "wide"])
def test_who_leaves_stops_the_chain_and_blocks_nobody(
    http: Any, stream: Any, wait_for: Any, row_steps: Any, asked: Any, abruptly: bool
) -> None:
    before, walkers = row_steps(), asked["walkers"]
    with stream(http, NDJSON, **asked) as left:
        chain = left.chain
        wait_for(lambda: row_steps() >= before + 5 * walkers)
        if abruptly:
            left.reset()
        seen = row_steps()
    wait_for(lambda: not looked(http, chain)["busy"], seconds=3.5)  # the lease has 4 left or more
    step, stopped = looked(http, chain)["step"], row_steps()
    assert step * walkers == stopped - before  # whatever was walked is kept
    if asked is WIDE:
        assert stopped - seen <= 8 * walkers  # those between two requests of ours
    assert step < asked["steps"] / 4
    on = http.post("/sample", json={"chain": chain, "steps": 3})
    assert on.status_code == 200 and on.json()["from_step"] == step
    assert row_steps() == stopped + 3 * walkers  # nobody else walks


def test_a_second_writer_is_told_to_wait(http: Any, stream: Any, wait_for: Any) -> None:
    with stream(http, SSE, **LONG) as first:
        next(iter(first))
        for asked in ({"steps": 1}, {"steps": 1, "from_step": 0}, {"steps": 1, "stream": True}):
            second = http.post("/sample", json={"chain": first.chain, **asked})
            assert second.status_code == 409 and 4 <= int(second.headers["retry-after"]) <= 6
            assert second.json()["type"].endswith(":busy-chain")
        assert looked(http, first.chain)["busy"] is True


@pytest.mark.parametrize(
    ("asked", "kind"),
    [*((LONG, kind) for kind in STREAMS), (WIDE, NDJSON)],
    ids=[*STREAMS, "before the first sample"],
)
def test_the_end_of_a_chain_ends_its_stream(http: Any, stream: Any, asked: Any, kind: str) -> None:
    with stream(http, kind, **asked) as ended:
        samples = iter(ended)
        got = len(list(itertools.islice(samples, 10))) if asked is LONG else 0
        assert http.delete(f"/chains/{ended.chain}").status_code == 204
        got += len(list(samples))
    if kind == NPY:
        assert ended.tail["done"] is False
    else:
        check_error(ended.tail, 410, ended.chain)
        assert "was ended" in ended.tail["error"]["detail"]
    assert got <= ended.tail["step"] < 100_000
    assert http.get(f"/chains/{ended.chain}").status_code == 410


@pytest.mark.parametrize("kind", STREAMS)
def test_a_sample_is_committed_before_it_is_delivered(http: Any, stream: Any, kind: str) -> None:
    with stream(http, kind, **LONG) as samples:
        for step, _ in enumerate(itertools.islice(samples, 100), 1):
            assert looked(http, samples.chain)["step"] >= step


@pytest.mark.parametrize("kind", STREAMS)
def test_what_is_not_read_is_not_walked(
    served: Any, http: Any, stream: Any, row_steps: Any, settled: Any, kind: str
) -> None:
    process, before = psutil.Process(served.process.pid), row_steps()
    asked = {"seed": 1, "walkers": 512, "steps": 3900, "thin": 1}  # gigabytes of text
    with stream(http, kind, **asked) as slow:
        samples = enumerate(slow, 1)
        next(samples)
        begun = process.memory_info().rss
        ahead = (settled(http) - before) // 512
        assert ahead < 200 and looked(http, slow.chain)["step"] <= ahead
        assert process.memory_info().rss - begun < 100e6
        count = [count for count, _ in itertools.islice(samples, 2 * ahead)][-1]
        assert count <= looked(http, slow.chain)["step"] <= count + 200


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "no steps": (422, {"steps": 0}),
    "a kernel that is not there": (422, {"kernel": "metropolis"}),
    "narrow points": (422, {"start": {"points": [[1, 2, 3]]}}),
    "a seed that was another": (422, {"chain": "old", "seed": 3}),
    "an unknown chain": (404, {"chain": "f" * 32}),
    "an unknown model": (404, {"model": "nothing"}),
    "an ended chain": (410, {"chain": "ended"}),
    "a step of the future": (409, {"chain": "old", "from_step": 11}),
    "a step that is past": (409, {"chain": "old", "from_step": 1}),
    "too many walkers": (413, {"walkers": 5000}),
    "too many steps": (413, {"steps": 10**8}),
}


@pytest.fixture(scope="module")
def names(served: Any) -> dict[str, str]:
    """Chains by what became of them."""
    old, ended = (served.http.post("/sample", json={"steps": 5}).json()["chain"] for _ in range(2))
    served.http.post("/sample", json={"chain": old, "steps": 5})
    served.http.delete(f"/chains/{ended}")
    return {"old": old, "ended": ended}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("case", CASES)
def test_a_refusal_comes_before_the_first_byte(
    http: Any, names: dict[str, str], case: str, kind: str
) -> None:
    status, asked = CASES[case]
    asked = {**asked, "stream": True}
    if "chain" in asked:
        asked["chain"] = names.get(asked["chain"], asked["chain"])
    answer = http.post("/sample", json=asked, headers={"accept": kind})
    assert answer.status_code == answer.json()["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_format_that_is_not_written_is_refused_before_the_first_byte(http: Any) -> None:
    answer = http.post("/sample", json={"stream": True}, headers={"accept": "image/png"})
    assert answer.status_code == 406


@pytest.mark.parametrize("kind", [NDJSON, SSE])
def test_a_chain_that_diverges_keeps_what_it_had(http: Any, stream: Any, kind: str) -> None:
    asked = {"kernel": "walkjump", "scale": 1e6, "floor": 1e3, "steps": 2000, "thin": 1}
    with stream(http, kind, **asked) as diverging:
        steps = [step for step, x in diverging if np.isfinite(x).all()]
    check_error(diverging.tail, 422, diverging.chain)
    last = diverging.tail["step"]
    assert steps == list(range(1, last + 1)) and diverging.tail["error"]["step"] == last + 1
    stands = looked(http, diverging.chain)
    assert stands["step"] == last > 0 and stands["busy"] is False
    again = http.post("/sample", json={"chain": diverging.chain, "from_step": 0, "steps": last})
    assert again.status_code == 200 and again.json()["shape"][0] == last


@pytest.mark.parametrize("kind", [NDJSON, SSE])
def test_a_store_that_dies_and_comes_back_has_every_sample(
    mortal: Any, make_caller: Any, walked: Any, wait_for: Any, kind: str
) -> None:
    store, http = mortal
    asked = {"seed": 8, "walkers": 16, "burn_in": 3, "thin": 2, "steps": 2000}
    caller = make_caller(**asked)
    with pytest.raises(AssertionError, match="store"):  # not the end that it was promised
        for count, _ in enumerate(caller.follow(http, kind)):
            if count == 30:
                store.kill()
    check_error(caller.tail, 503, caller.chain)
    assert caller.at <= caller.tail["step"] < caller.last
    refused = http.post("/sample", json={"stream": True})
    assert refused.status_code == 503 and http.get("/readyz").status_code == 503
    store.start()
    wait_for(lambda: http.get("/readyz").status_code == 200)
    assert looked(http, caller.chain)["step"] >= caller.tail["step"]
    list(caller.follow(http, NPY))
    assert caller.steps == list(range(5, 2004, 2))
    expected = walked(8, 16, 2003)[4::2]
    assert np.array(caller.samples).tobytes() == expected.tobytes()


def test_a_call_whose_store_died_is_no_success(
    mortal: Any, walked: Any, walked_rows: Any, wait_for: Any
) -> None:
    store, http = mortal
    before, headers = walked_rows(http), {"idempotency-key": "sent-again"}
    asked = {"seed": 9, "walkers": 16, "steps": 1500, "thin": 10}
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(http.post, "/sample", json=asked, headers=headers)
        wait_for(lambda: walked_rows(http) > before)
        store.kill()
        assert call.result().status_code == 503
    store.start()
    wait_for(lambda: http.get("/readyz").status_code == 200)
    wait_for(lambda: http.post("/sample", json=asked, headers=headers).status_code != 409)
    again = http.post("/sample", json=asked, headers=headers).json()
    assert np.array_equal(np.float32(again["samples"]), walked(9, 16, 1500)[9::10])


@pytest.fixture(scope="module")
def mortal(make_store: Any, make_replicas: Any) -> Any:
    """A store that a test may kill, and a client of a service that uses it."""
    store = make_store()
    return store, make_replicas(1, redis_url=store.url, lease_seconds=1, store_seconds=2)[0].http
