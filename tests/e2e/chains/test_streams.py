"""Streams that end early: the client disconnects, reads slowly or deletes the chain, the request is
refused, the chain diverges, or the store dies. The chain stays at the step that the stream names.
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

LONG = {"seed": 1, "walkers": 4, "steps": 400_000, "thin": 1}  # takes minutes
WIDE = {"seed": 1, "walkers": 4096, "steps": 400, "thin": 400}  # steps take many milliseconds


@pytest.fixture(scope="module")
def served(make_replicas: Any) -> Any:
    return make_replicas(1, lease_seconds=6)[0]


@pytest.fixture
def http(served: Any) -> Any:
    return served.http


@pytest.fixture
def row_steps(http: Any, count_row_steps: Any) -> Any:
    """Return the walkers × steps of all chains since the service started."""
    return lambda: count_row_steps(http)


def get_chain(http: Any, chain: str) -> Any:
    response = http.get(f"/chains/{chain}")
    assert response.status_code == 200, response.text
    return response.json()


def check_error(tail: Any, status: int, chain: str) -> None:
    assert set(tail) == {"error", "chain", "step"} and tail["chain"] == chain
    assert tail["error"]["status"] == status and tail["error"]["detail"].endswith(".")


@pytest.mark.parametrize("abruptly", [False, True])
@pytest.mark.parametrize("params", [LONG, WIDE], ids=["long", "wide"])
def test_a_disconnect_stops_the_chain_and_frees_it_at_once(
    http: Any, stream: Any, wait_for: Any, row_steps: Any, params: Any, abruptly: bool
) -> None:
    before, walkers = row_steps(), params["walkers"]
    with stream(http, NDJSON, **params) as left:
        chain = left.chain
        wait_for(lambda: row_steps() >= before + 5 * walkers)
        if abruptly:
            left.reset()
        seen = row_steps()
    wait_for(
        lambda: not get_chain(http, chain)["busy"], seconds=3.5
    )  # sooner than the lease expires
    step, stopped = get_chain(http, chain)["step"], row_steps()
    assert step * walkers == stopped - before  # every step was committed
    if params is WIDE:
        assert stopped - seen <= 8 * walkers  # steps between two requests of this test
    assert step < params["steps"] / 4
    on = http.post("/sample", json={"chain": chain, "steps": 3})
    assert on.status_code == 200 and on.json()["from_step"] == step
    assert row_steps() == stopped + 3 * walkers  # no other chain walks


def test_a_second_writer_gets_409_with_retry_after(http: Any, stream: Any, wait_for: Any) -> None:
    with stream(http, SSE, **LONG) as first:
        next(iter(first))
        for params in ({"steps": 1}, {"steps": 1, "from_step": 0}, {"steps": 1, "stream": True}):
            second = http.post("/sample", json={"chain": first.chain, **params})
            assert second.status_code == 409 and 4 <= int(second.headers["retry-after"]) <= 6
            assert second.json()["type"].endswith(":busy-chain")
        assert get_chain(http, first.chain)["busy"] is True


@pytest.mark.parametrize(
    ("params", "kind"),
    [*((LONG, kind) for kind in STREAMS), (WIDE, NDJSON)],
    ids=[*STREAMS, "before the first sample"],
)
def test_deleting_a_chain_ends_its_stream(http: Any, stream: Any, params: Any, kind: str) -> None:
    with stream(http, kind, **params) as ended:
        samples = iter(ended)
        received = len(list(itertools.islice(samples, 10))) if params is LONG else 0
        assert http.delete(f"/chains/{ended.chain}").status_code == 204
        received += len(list(samples))
    if kind == NPY:
        assert ended.tail["done"] is False
    else:
        check_error(ended.tail, 410, ended.chain)
        assert "was deleted" in ended.tail["error"]["detail"]
    assert received <= ended.tail["step"] < 100_000
    assert http.get(f"/chains/{ended.chain}").status_code == 410


@pytest.mark.parametrize("kind", STREAMS)
def test_a_sample_is_committed_before_it_is_delivered(http: Any, stream: Any, kind: str) -> None:
    with stream(http, kind, **LONG) as samples:
        for step, _ in enumerate(itertools.islice(samples, 100), 1):
            assert get_chain(http, samples.chain)["step"] >= step


@pytest.mark.parametrize("kind", STREAMS)
def test_a_chain_does_not_walk_far_ahead_of_its_reader(
    served: Any, http: Any, stream: Any, row_steps: Any, wait_until_idle: Any, kind: str
) -> None:
    process, before = psutil.Process(served.process.pid), row_steps()
    params = {"seed": 1, "walkers": 512, "steps": 3900, "thin": 1}  # gigabytes
    with stream(http, kind, **params) as slow:
        samples = enumerate(slow, 1)
        next(samples)
        started = process.memory_info().rss
        ahead = (wait_until_idle(http) - before) // 512
        assert ahead < 200 and get_chain(http, slow.chain)["step"] <= ahead
        assert process.memory_info().rss - started < 100e6
        count = [count for count, _ in itertools.islice(samples, 2 * ahead)][-1]
        assert count <= get_chain(http, slow.chain)["step"] <= count + 200


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
    """Ids of an old chain and a deleted one."""
    old, ended = (served.http.post("/sample", json={"steps": 5}).json()["chain"] for _ in range(2))
    served.http.post("/sample", json={"chain": old, "steps": 5})
    served.http.delete(f"/chains/{ended}")
    return {"old": old, "ended": ended}


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("case", CASES)
def test_a_request_is_refused_before_the_stream_starts(
    http: Any, names: dict[str, str], case: str, kind: str
) -> None:
    status, params = CASES[case]
    params = {**params, "stream": True}
    if "chain" in params:
        params["chain"] = names.get(params["chain"], params["chain"])
    response = http.post("/sample", json=params, headers={"accept": kind})
    assert response.status_code == response.json()["status"] == status
    assert response.headers["content-type"] == "application/problem+json"


def test_an_unknown_format_is_refused_before_the_stream_starts(http: Any) -> None:
    response = http.post("/sample", json={"stream": True}, headers={"accept": "image/png"})
    assert response.status_code == 406


@pytest.mark.parametrize("kind", [NDJSON, SSE])
def test_a_chain_that_diverges_keeps_its_last_good_state(http: Any, stream: Any, kind: str) -> None:
    params = {"kernel": "walkjump", "scale": 1e6, "floor": 1e3, "steps": 2000, "thin": 1}
    with stream(http, kind, **params) as diverging:
        steps = [step for step, x in diverging if np.isfinite(x).all()]
    check_error(diverging.tail, 422, diverging.chain)
    last = diverging.tail["step"]
    assert steps == list(range(1, last + 1)) and diverging.tail["error"]["step"] == last + 1
    stands = get_chain(http, diverging.chain)
    assert stands["step"] == last > 0 and stands["busy"] is False
    again = http.post("/sample", json={"chain": diverging.chain, "from_step": 0, "steps": last})
    assert again.status_code == 200 and again.json()["shape"][0] == last


@pytest.mark.parametrize("kind", [NDJSON, SSE])
def test_no_sample_is_lost_when_the_store_is_killed_and_restarted(
    killable: Any, make_caller: Any, reference_chain: Any, wait_for: Any, kind: str
) -> None:
    store, http = killable
    params = {"seed": 8, "walkers": 16, "burn_in": 3, "thin": 2, "steps": 2000}
    caller = make_caller(**params)
    with pytest.raises(AssertionError, match="store"):  # the stream ends with an error
        for count, _ in enumerate(caller.follow(http, kind)):
            if count == 30:
                store.kill()
    check_error(caller.tail, 503, caller.chain)
    assert caller.at <= caller.tail["step"] < caller.last
    refused = http.post("/sample", json={"stream": True})
    assert refused.status_code == 503 and http.get("/readyz").status_code == 503
    store.start()
    wait_for(lambda: http.get("/readyz").status_code == 200)
    assert get_chain(http, caller.chain)["step"] >= caller.tail["step"]
    list(caller.follow(http, NPY))
    assert caller.steps == list(range(5, 2004, 2))
    expected = reference_chain(8, 16, 2003)[4::2]
    assert np.array(caller.samples).tobytes() == expected.tobytes()


def test_a_call_whose_store_is_killed_fails_and_can_be_repeated(
    killable: Any, reference_chain: Any, count_row_steps: Any, wait_for: Any
) -> None:
    store, http = killable
    before, headers = count_row_steps(http), {"idempotency-key": "sent-again"}
    params = {"seed": 9, "walkers": 16, "steps": 1500, "thin": 10}
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(http.post, "/sample", json=params, headers=headers)
        wait_for(lambda: count_row_steps(http) > before)
        store.kill()
        assert call.result().status_code == 503
    store.start()
    wait_for(lambda: http.get("/readyz").status_code == 200)
    wait_for(lambda: http.post("/sample", json=params, headers=headers).status_code != 409)
    again = http.post("/sample", json=params, headers=headers).json()
    assert np.array_equal(np.float32(again["samples"]), reference_chain(9, 16, 1500)[9::10])


@pytest.fixture(scope="module")
def killable(make_store: Any, make_replicas: Any) -> Any:
    """A store that a test may kill, and an HTTP client of a service that uses it."""
    store = make_store()
    return store, make_replicas(1, redis_url=store.url, lease_seconds=1, store_seconds=2)[0].http
