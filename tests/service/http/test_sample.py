"""POST /sample: its defaults and each of its options."""

import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localmoments.chain import draw_starts, encode_state, make_transition, positions
from localmoments.chain_state import Clamp, Transition
from localmoments.clamp import default_scale
from localmoments.model import Model
from localmoments.noise import FLOOR_NOISE, normals

NPY, NDJSON, SSE = "application/x-npy", "application/x-ndjson", "text/event-stream"


def sample(client: Any, **asked: Any) -> dict[str, Any]:
    answer = client.post("/sample", json=asked)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def walked(model: Model, walk: Transition, x: Any, steps: int, emit: str = "mean") -> Any:
    """What the engine gives by itself; (steps, W, d) in the units of the data."""
    start = encode_state(model, walk.kernel, x, walk.clamp)
    each = positions(model, walk, start, steps)
    return np.array([model.manifest.normaliser.to_user(getattr(p, emit)) for p in each])


def test_an_empty_request_samples_the_default_model(
    client: Any,
) -> None:
    """The seed is said, because this model was trained for a moment only and can run away."""
    body = sample(client, seed=1)
    assert body["model"] == "tiny@1" and body["shape"] == [10, 4, 8]
    assert np.array(body["samples"]).shape == (10, 4, 8)
    assert (body["from_step"], body["step"], body["thin"], body["burn_in"]) == (0, 100, 10, 0)
    assert body["kernel"] == "gibbs" and body["scale"] == 1.0
    empty = client.post("/sample?seed=1")
    assert empty.status_code == 200 and empty.json()["samples"] == body["samples"]
    seeds = {sample(client, steps=1)["seed"] for _ in range(3)}
    assert len(seeds) == 3 and max(seeds) < 2**53


@pytest.mark.parametrize("kernel", ["gibbs", "hidden", "input", "moment", "walkjump"])
@pytest.mark.parametrize("emit", ["mean", "noisy"])
def test_samples_equal_those_of_the_engine(
    client: Any, tiny_served: Model, kernel: str, emit: str
) -> None:
    asked = {"kernel": kernel, "seed": 5, "walkers": 3, "steps": 6, "thin": 1, "emit": emit}
    body = sample(client, **asked)
    walk = make_transition(tiny_served, seed=5, kernel=kernel)
    expected = walked(tiny_served, walk, draw_starts(tiny_served, 3, 5), 6, emit)
    assert np.array_equal(np.float32(body["samples"]), expected)


def test_all_formats_have_the_same_bits(client: Any) -> None:
    asked = {"seed": 11, "walkers": 2, "steps": 7, "thin": 2, "burn_in": 3}
    body = sample(client, **asked)
    assert body["step"] == 10 and body["shape"] == [3, 2, 8]
    whole = client.post("/sample", json=asked, headers={"accept": NPY})
    assert np.array_equal(np.load(io.BytesIO(whole.content)), np.float32(body["samples"]))
    assert whole.headers["x-chain-step"] == "10" and len(whole.headers["x-chain-id"]) == 32
    lines = client.post("/sample", json=asked, headers={"accept": NDJSON}).text.splitlines()
    events = client.post("/sample", json={**asked, "stream": True}).text.split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    for parts in (lines, [e.removeprefix("data: ") for e in events[:-2]]):
        head, *samples, tail = map(json.loads, parts)
        assert {k: head[k] for k in head if k != "chain"} == {
            k: v for k, v in body.items() if k not in ("chain", "samples")
        }
        assert [s["step"] for s in samples] == [5, 7, 9]
        assert [s["x"] for s in samples] == body["samples"]
        assert tail == {"done": True, "step": 10}


def test_numpy_reads_the_frames_of_a_stream_one_by_one(client: Any) -> None:
    asked = {"seed": 11, "walkers": 2, "steps": 5, "thin": 1}
    headers = {"accept": NPY}
    answer = client.post("/sample", json={**asked, "stream": True}, headers=headers)
    stream, arrays = io.BytesIO(answer.content), []
    while True:
        arrays.append(np.load(stream))
        if arrays[-1].ndim == 1:
            break
    assert stream.read() == b"" and arrays[-1].tolist() == [1, 5]
    assert np.array_equal(arrays[:-1], np.float32(sample(client, **asked)["samples"]))


@pytest.mark.parametrize(
    ("accept", "stream", "got"),
    [
        ("*/*", False, "application/json"),
        ("*/*", True, SSE),
        ("application/json", True, SSE),
        (NDJSON, True, NDJSON),
        (NDJSON, False, NDJSON),
        (SSE, False, SSE),
        (f"{NPY}, application/json;q=0.5", False, NPY),
    ],
)
def test_accept_and_stream_are_both_honoured(
    client: Any, accept: str, stream: bool, got: str
) -> None:
    answer = client.post("/sample", json={"steps": 1, "stream": stream}, headers={"accept": accept})
    assert answer.headers["content-type"].partition(";")[0] == got


def test_several_calls_give_the_samples_of_one_call(client: Any) -> None:
    asked = {"seed": 3, "walkers": 3, "burn_in": 4, "thin": 3}
    whole = sample(client, **asked, steps=40)
    first = sample(client, **asked, steps=5)
    pieces, steps = list(first["samples"]), first["step"]
    for more in (1, 2, 11, 3, 18):
        body = sample(client, chain=first["chain"], steps=more, from_step=steps)
        assert body["from_step"] == steps and body["step"] == steps + more
        pieces, steps = [*pieces, *body["samples"]], body["step"]
    assert steps == 44 and pieces == whole["samples"]


def test_from_step_may_be_any_step_since_the_last_call(client: Any, problem: Any) -> None:
    first = sample(client, seed=8, walkers=2, steps=10, thin=1)
    chain = first["chain"]
    second = sample(client, chain=chain, steps=10)
    for back in (10, 13, 20):
        again = sample(client, chain=chain, from_step=back, steps=20 - back or 1)
        if back < 20:
            assert again["samples"] == second["samples"][back - 10 :]
    body = problem(client.post("/sample", json={"chain": chain, "from_step": 3}), 409, "20 to 21")
    assert body["possible"] == {"first": 20, "last": 21}
    problem(client.post("/sample", json={"chain": chain, "from_step": 22}), 409, "20 to 21")


def test_a_call_may_start_before_the_last_step_and_end_after_it(client: Any) -> None:
    whole = sample(client, seed=8, walkers=2, steps=30, thin=1)
    chain = sample(client, seed=8, walkers=2, steps=10, thin=1)["chain"]
    assert sample(client, chain=chain, from_step=4, steps=20)["samples"] == whole["samples"][4:24]
    assert client.get(f"/chains/{chain}").json()["possible"] == {"first": 4, "last": 24}
    assert sample(client, chain=chain, steps=6)["samples"] == whole["samples"][24:]


def test_thin_counts_from_the_end_of_burn_in(client: Any) -> None:
    every = sample(client, seed=2, walkers=1, steps=30, thin=1)["samples"]
    body = sample(client, seed=2, walkers=1, steps=23, thin=5, burn_in=7)
    assert body["samples"] == [every[t - 1] for t in (12, 17, 22, 27)]


def test_a_short_first_call_still_returns_a_sample(client: Any) -> None:
    assert sample(client, steps=3)["shape"][0] == 1
    assert sample(client, steps=3, thin=5)["shape"][0] == 0


def test_walkers_start_in_noise_at_points_or_at_another_chain(
    client: Any, tiny_served: Model
) -> None:
    walk, units = make_transition(tiny_served, seed=4), tiny_served.manifest.normaliser
    asked = {"seed": 4, "steps": 2, "thin": 1, "emit": "mean"}
    noise = sample(client, **asked, walkers=3, start="noise")["samples"]
    assert np.array_equal(
        np.float32(noise), walked(tiny_served, walk, draw_starts(tiny_served, 3, 4, "noise"), 2)
    )
    rows = units.to_user(tiny_served.start_points()[:2]).round(3)
    body = sample(client, **asked, start={"points": rows.tolist()})
    expected = walked(tiny_served, walk, units.to_model(rows), 2)
    assert np.array_equal(np.float32(body["samples"]), expected)
    stream = io.BytesIO()
    np.save(stream, rows)
    headers = {"content-type": NPY}
    same = client.post(
        "/sample?seed=4&steps=2&thin=1&emit=mean", content=stream.getvalue(), headers=headers
    )
    assert same.json()["samples"] == body["samples"]
    one = sample(client, **asked, walkers=5, start={"points": rows[:1].tolist()})
    alike = units.to_model(np.repeat(rows[:1], 5, 0))
    assert np.array_equal(np.float32(one["samples"]), walked(tiny_served, walk, alike, 2))
    stands = client.get(f"/chains/{body['chain']}").json()["x"]
    other = sample(client, **asked, start={"chain": body["chain"]})
    expected = walked(tiny_served, walk, units.to_model(np.array(stands)), 2)
    assert np.array_equal(np.float32(other["samples"]), expected)


@pytest.mark.parametrize("kernel", ["gibbs", "moment"])
@pytest.mark.parametrize("flag", [bool, int])
def test_clamped_columns_stay_and_the_others_move(
    client: Any, tiny_served: Model, kernel: str, flag: type
) -> None:
    units = tiny_served.manifest.normaliser
    row = units.to_user(tiny_served.start_points()[0]).round(3)
    mask = np.arange(8) < 3
    clamp = {"mask": [flag(b) for b in mask], "values": row.tolist()}
    asked = {"seed": 4, "steps": 5, "thin": 1, "walkers": 2, "emit": "mean"}
    asked |= {"kernel": kernel, "clamp": clamp}
    got = np.float32(sample(client, **asked)["samples"])
    np.testing.assert_allclose(got[..., mask], np.broadcast_to(row[mask], (5, 2, 3)), rtol=1e-5)
    assert (got[..., ~mask].std(axis=0) > 0).all()
    known = Clamp(mask[None], units.to_model(row[None]), np.zeros((1, 8), np.float32))
    walk = Transition(kernel, 4, (default_scale(tiny_served.manifest, kernel),), 0.0, known)
    assert np.array_equal(got, walked(tiny_served, walk, draw_starts(tiny_served, 2, 4), 5))


def test_each_walker_may_have_its_own_mask_and_std(client: Any, tiny_served: Model) -> None:
    units = tiny_served.manifest.normaliser
    rows = units.to_user(tiny_served.start_points()[:2]).round(3)
    mask, std = np.array([np.arange(8) < 3, np.arange(8) > 5]), np.array([0.0, 0.5] * 4)
    clamp = {"mask": mask.tolist(), "values": rows.tolist(), "std": std.tolist()}
    asked = {"seed": 4, "steps": 3, "thin": 1, "walkers": 2, "emit": "noisy", "clamp": clamp}
    got = np.float32(sample(client, **asked)["samples"])
    exact = mask & (std == 0)
    held = np.broadcast_to(rows[exact], (3, exact.sum()))
    np.testing.assert_allclose(got[:, exact], held, rtol=1e-5)
    assert (got[:, mask & (std > 0)].std(axis=0) > 0).all()
    known = Clamp(mask, units.to_model(rows), np.float32(np.where(mask, std / units.scale, 0)))
    walk = Transition("gibbs", 4, (default_scale(tiny_served.manifest, "gibbs"),), 0.0, known)
    start = draw_starts(tiny_served, 2, 4)
    assert np.array_equal(got, walked(tiny_served, walk, start, 3, "noisy"))
    one = sample(client, **asked | {"clamp": {**clamp, "std": 0.25}})["samples"]
    alike = sample(client, **asked | {"clamp": {**clamp, "std": [[0.25] * 8] * 2}})["samples"]
    assert one == alike != got.tolist()


def test_a_clamped_chain_resumes_and_forks_as_in_one_call(client: Any) -> None:
    clamp = {"mask": [1, 1, 0, 0, 0, 0, 0, 0], "values": [0.5] * 8, "std": 0.1}
    asked = {"seed": 4, "thin": 1, "walkers": 2, "clamp": clamp}
    whole = sample(client, **asked, steps=6)["samples"]
    first = sample(client, **asked, steps=2)
    branch = client.post(f"/chains/{first['chain']}/fork", json={}).json()["chain"]
    for chain in (first["chain"], branch):
        assert sample(client, chain=chain, steps=4)["samples"] == whole[2:]
    again = sample(client, chain=first["chain"], from_step=3, steps=3)["samples"]
    assert again == whole[3:]


@pytest.mark.parametrize("kernel", ["walkjump", "moment"])
def test_metropolis_equals_the_engine_and_returns_the_acceptance(
    client: Any, tiny_served: Model, kernel: str
) -> None:
    asked = {"seed": 5, "walkers": 3, "steps": 6, "thin": 1, "kernel": kernel, "metropolis": True}
    body = sample(client, **asked, emit="noisy")
    walk = replace(make_transition(tiny_served, seed=5, kernel=kernel), metropolis=True)
    start = draw_starts(tiny_served, 3, 5)
    assert np.array_equal(np.float32(body["samples"]), walked(tiny_served, walk, start, 6, "noisy"))
    accepted = sum(p.accepted for p in positions(tiny_served, walk, start, 6))
    assert body["metropolis"] is True and body["acceptance"] == accepted / 18
    answer = client.post("/sample", json=asked, headers={"accept": NDJSON}).text
    assert json.loads(answer.splitlines()[-1])["acceptance"] == body["acceptance"]
    assert "acceptance" not in sample(client, steps=1, seed=1)
    rest = sample(client, chain=body["chain"], steps=2)
    assert rest["metropolis"] is True and 0 <= rest["acceptance"] <= 1


def test_clamping_all_columns_returns_their_values(client: Any, tiny_served: Model) -> None:
    rows = tiny_served.manifest.normaliser.to_user(tiny_served.start_points()[:2])
    clamp = {"mask": [True] * 8, "values": rows.tolist()}
    got = np.array(sample(client, walkers=2, steps=3, thin=1, clamp=clamp)["samples"])
    np.testing.assert_allclose(got, np.broadcast_to(rows, (3, 2, 8)), rtol=1e-5, atol=1e-6)


def test_scale_floor_and_seed_do_what_the_engine_does(client: Any, tiny_served: Model) -> None:
    asked = {"seed": 6, "steps": 4, "thin": 1, "walkers": 2, "emit": "noisy"}
    body = sample(client, **asked, scale=[0.5, 0.25], floor=0.1)
    assert body["scale"] == [0.5, 0.25] and body["floor"] == 0.1
    walk = Transition("gibbs", 6, (0.5, 0.25), 0.1)
    expected = walked(tiny_served, walk, draw_starts(tiny_served, 2, 6), 4, "noisy")
    assert np.array_equal(np.float32(body["samples"]), expected)
    query = "/sample?seed=6&steps=4&thin=1&walkers=2&emit=noisy&scale=0.5,0.25&floor=0.1"
    assert client.post(query).json()["samples"] == body["samples"]
    assert sample(client, **asked)["samples"] != sample(client, **asked | {"seed": 7})["samples"]


def test_floor_is_the_standard_deviation_of_the_added_noise(
    client: Any, tiny_served: Model
) -> None:
    asked = {"seed": 6, "steps": 1, "thin": 1, "walkers": 2, "emit": "noisy"}
    plain = np.array(sample(client, **asked)["samples"][0])
    floored = np.array(sample(client, **asked, floor=0.25)["samples"][0])
    noise = 0.25 * normals(6, 0, (2, 8), stream=FLOOR_NOISE)
    scale = tiny_served.manifest.normaliser.scale
    np.testing.assert_allclose((floored - plain) / scale, noise, atol=1e-5)


def test_a_request_with_an_idempotency_key_can_be_repeated(client: Any, problem: Any) -> None:
    asked, headers = {"steps": 6, "thin": 2}, {"idempotency-key": "k-1"}
    first = client.post("/sample", json=asked, headers=headers).json()
    again = client.post("/sample", json=asked, headers=headers).json()
    assert again == first
    stream = client.post("/sample", json={**asked, "stream": True}, headers=headers)
    assert first["chain"] in stream.text
    other = client.post("/sample", json={**asked, "thin": 3}, headers=headers)
    problem(other, 422, "Idempotency-Key")
    assert client.post("/sample", json=asked).json()["chain"] != first["chain"]


def test_fixed_parameters_may_be_repeated_but_not_changed(client: Any, problem: Any) -> None:
    asked: dict[str, Any] = {
        "model": "tiny", "seed": 3, "walkers": 2, "kernel": "gibbs", "scale": 0.5, "floor": 0.1,
        "burn_in": 1, "start": "noise", "clamp": {"mask": [1, 0, 0, 0, 0, 0, 0, 0],
                                                  "values": [0.5] * 8},
    }  # fmt: skip
    chain = sample(client, **asked, steps=3)["chain"]
    assert sample(client, **asked, steps=3, chain=chain)["step"] == 7
    others = {"model": "tiny@2", "seed": 4, "walkers": 3, "kernel": "moment", "scale": [0.5, 0.5],
              "floor": 0.2, "burn_in": 0, "start": "data",
              "clamp": {"mask": [1, 0, 0, 0, 0, 0, 0, 1], "values": [0.5] * 8}}  # fmt: skip
    for name, value in others.items():
        answer = client.post("/sample", json={"chain": chain, name: value})
        problem(answer, 422, f"{name} of chain {chain} cannot be changed")
    assert client.get(f"/chains/{chain}").json()["step"] == 7
