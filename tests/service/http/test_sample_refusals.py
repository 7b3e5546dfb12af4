"""POST /sample: the requests it refuses, and the state that they leave."""

import json
import time
from typing import Any

import pytest

NDJSON = "application/x-ndjson"
ROW = [0.0] * 8
BAD: dict[str, tuple[int, str, dict[str, Any]]] = {
    "steps negative": (422, "steps", {"steps": -1}),
    "steps zero": (422, "steps", {"steps": 0}),
    "steps a fraction": (422, "steps", {"steps": 1.5}),
    "walkers none": (422, "walkers", {"walkers": 0}),
    "thin": (422, "thin", {"thin": 0}),
    "burn-in": (422, "burn_in", {"burn_in": -1}),
    "seed": (422, "seed", {"seed": -1}),
    "seed too large": (422, "seed", {"seed": 2**63}),
    "kernel": (422, "has no kernel 'metropolis'; it has", {"kernel": "metropolis"}),
    "scale": (422, "scale", {"scale": 0}),
    "scales": (422, "scale", {"scale": []}),
    "scale among others": (422, "scale", {"scale": [1, -1]}),
    "floor": (422, "floor", {"floor": -1}),
    "emit": (422, "emit", {"emit": "both"}),
    "start": (422, "start", {"start": "here"}),
    "start of two kinds": (422, "start", {"start": {"points": [ROW], "chain": "0" * 32}}),
    "narrow points": (422, "start.points has 3 columns", {"start": {"points": [[1, 2, 3]]}}),
    "ragged points": (422, "start.points must have rows", {"start": {"points": [[1], [1, 2]]}}),
    "words for points": (422, "start.points contains", {"start": {"points": [["a"] * 8]}}),
    "no points": (422, "start.points has no rows", {"start": {"points": []}}),
    "far points": (422, "start.points[0][0] is 1e+38", {"start": {"points": [[1e38, *ROW[1:]]]}}),
    "points for others": (422, "2 points for 3 walkers",
                          {"walkers": 3, "start": {"points": [ROW, ROW]}}),
    "an unknown start": (404, "no chain", {"start": {"chain": "0" * 32}}),
    "mask": (422, "clamp.mask has 3 columns", {"clamp": {"mask": [1, 0, 1], "values": ROW}}),
    "mask of words": (422, "clamp.mask", {"clamp": {"mask": ["a"] * 8, "values": ROW}}),
    "values": (422, "clamp.values has 2 columns", {"clamp": {"mask": [True] * 8,
                                                              "values": [1, 2]}}),
    "values of others": (422, "clamp.values has 2 rows for 4",
                         {"clamp": {"mask": [True] * 8, "values": [ROW, ROW]}}),
    "mask of others": (422, "clamp.mask has 2 rows for 4",
                       {"clamp": {"mask": [[True] * 8] * 2, "values": ROW}}),
    "ragged mask": (422, "clamp.mask", {"clamp": {"mask": [[1, 0], [1]], "values": ROW}}),
    "empty mask": (422, "clamp.mask", {"clamp": {"mask": [], "values": ROW}}),
    "negative std": (422, "clamp.std", {"clamp": {"mask": [True] * 8, "values": ROW,
                                                  "std": -0.5}}),
    "negative stds": (422, "clamp.std has a negative", {"clamp": {
        "mask": [True] * 8, "values": ROW, "std": [-0.5] * 8}}),
    "narrow std": (422, "clamp.std has 2 columns", {"clamp": {
        "mask": [True] * 8, "values": ROW, "std": [1, 1]}}),
    "a kernel that cannot condition": (422, "`clamp` works with the kernels gibbs and moment",
                                       {"clamp": {"mask": [True] * 8, "values": ROW},
                                        "kernel": "walkjump"}),
    "a kernel that cannot be corrected": (422, "`metropolis` works with the kernels walkjump and",
                                          {"kernel": "gibbs", "metropolis": True}),
    "a correction and a floor": (422, "cannot be combined with `floor`",
                                 {"kernel": "moment", "metropolis": True, "floor": 0.1}),
    "a correction and known columns": (422, "cannot be combined with `clamp`",
                                       {"kernel": "moment", "metropolis": True,
                                        "clamp": {"mask": [True] * 8, "values": ROW}}),
    "no values": (422, "clamp", {"clamp": {"mask": [True] * 8}}),
    "far values": (422, "clamp.values[0][2]",
                   {"clamp": {"mask": [True] * 8, "values": [0, 0, 1e38, 0, 0, 0, 0, 0]}}),
    "from_step alone": (422, "from_step", {"from_step": 3}),
    "no id": (422, "chain", {"chain": "../../etc"}),
    "an unknown chain": (404, "no chain", {"chain": "f" * 32}),
    "an unknown model": (404, "there are tiny", {"model": "../tiny"}),
    "a name misspelt": (422, "stepz", {"stepz": 1}),
    "too much work": (413, "row-steps", {"steps": 10**9}),
    "too many walkers": (413, "walkers", {"walkers": 100_000, "steps": 1}),
    "too long an answer": (413, "Stream it", {"walkers": 4000, "steps": 500, "thin": 1,
                                              "burn_in": 0, "start": "data"}),
    "too large a step": (422, "diverged", {"scale": 1e6, "floor": 1e3, "steps": 2000,
                                                  "kernel": "walkjump"}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_are_problems(make_client: Any, problem: Any, case: str) -> None:
    client = make_client(max_sample_values=10_000_000)
    status, words, asked = BAD[case]
    problem(client.post("/sample", json=asked), status, words)
    assert client.post("/sample", json={"steps": 1}).status_code == 200


def test_the_limit_on_values_does_not_apply_to_streams(make_client: Any, problem: Any) -> None:
    client = make_client(max_sample_values=100)
    asked = {"steps": 10, "thin": 1, "walkers": 2}
    problem(client.post("/sample", json=asked), 413, "160 numbers")
    answer = client.post("/sample", json=asked, headers={"accept": NDJSON})
    assert len(answer.text.splitlines()) == 12


def test_a_time_limit_keeps_the_chain_at_its_step(client: Any, problem: Any) -> None:
    still = {"mask": [True] * 8, "values": ROW}  # so that it can go on for long
    asked = {"clamp": still, "steps": 40_000, "thin": 100_000, "timeout_ms": 150}
    body = problem(client.post("/sample", json=asked), 408, "The chain is kept at step")
    standing = client.get(f"/chains/{body['chain']}").json()
    assert standing["step"] == body["step"] < 40_000 and standing["busy"] is False
    assert body["resume"] == {"chain": body["chain"], "from_step": 0, "steps": 40_000}
    *_, tail = client.post("/sample", json=asked, headers={"accept": NDJSON}).text.splitlines()
    rest = json.loads(tail)["resume"]
    assert json.loads(tail)["done"] is False and rest["from_step"] + rest["steps"] == 40_000
    problem(client.post("/reconstruct", json={"x": [ROW], "timeout_ms": 0}), 422, "timeout_ms")


def test_a_chain_that_cannot_be_stored_leaves_no_job_behind(
    make_client: Any, problem: Any, client: Any
) -> None:
    """It walks while the store is asked; the store is not there, or has one of that name."""
    lost = make_client("redis://127.0.0.1:1/0", store_seconds=0.2)
    problem(lost.post("/sample", json={"steps": 100_000, "thin": 1, "stream": True}), 503)
    headers = {"idempotency-key": "kept-already"}
    for _ in range(2):
        client.post("/sample", json={"steps": 4, "thin": 1}, headers=headers)
    for each in (lost, client):
        batcher = each.app.state.chains.batcher
        deadline = time.monotonic() + 10
        while batcher.load and time.monotonic() < deadline:
            time.sleep(0.01)
        assert batcher.load == 0
