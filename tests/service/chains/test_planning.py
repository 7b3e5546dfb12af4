"""Plans survive serialisation, old plans stay readable, and calls of a chain share its samples."""

from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmoments.chain_state import Clamp, Transition
from localmoments.model import Model
from service.chains.planning import Plan, compute_fingerprint, dump_plan, load_plan
from service.engine.chain_job import StepRange

TRANSITION = Transition("gibbs", 2**63 - 1, (0.1, 1 / 3), 0.25)
PLAN = Plan("m@1", "f", TRANSITION, 2, 3, 4, "mean", "data")

# Written by release 0.2, before plans had a transition.
STORED = (
    b'{"format":1,"model":"m@1","fingerprint":"f","kernel":"gibbs","scale":[0.1,0.3333333333333333]'
    b',"floor":0.25,"seed":9223372036854775807,"walkers":2,"burn_in":3,"thin":4,"emit":"mean",'
    b'"start":"data","clamp":null,"request":""}'
)
STORED_CLAMP = (
    b'{"mask":"oA==","values":"AACAPwAAAEAAAEBA","std":"AAAAAAAAAAAAAAA/",'
    b'"shapes":[[1,3],[1,3],[1,3]]}'
)


def test_a_plan_survives_serialisation() -> None:
    plan = replace(PLAN, request="r", transition=replace(TRANSITION, metropolis=True))
    assert load_plan(dump_plan(plan)) == plan


def test_a_plan_of_an_earlier_release_is_read_and_written_alike() -> None:
    assert load_plan(STORED) == PLAN
    assert orjson.loads(dump_plan(PLAN)) == orjson.loads(STORED)


def test_a_clamp_of_an_earlier_release_is_read_and_written_alike() -> None:
    stored = STORED.replace(b'"clamp":null', b'"clamp":' + STORED_CLAMP)
    plan = load_plan(stored)
    clamp = plan.transition.clamp
    assert clamp is not None
    assert clamp.mask.tolist() == [[True, False, True]]
    assert clamp.values.tolist() == [[1, 2, 3]] and clamp.std.tolist() == [[0, 0, 0.5]]
    assert orjson.loads(dump_plan(plan)) == orjson.loads(stored)


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 8), (2, 17)])
def test_a_clamp_survives_serialisation(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((3 - rows, columns)) < 0.5
    values, std = rng.random((2, rows, columns)).astype(np.float32)
    plan = replace(PLAN, transition=replace(TRANSITION, clamp=Clamp(mask, values, std)))
    clamp = load_plan(dump_plan(plan)).transition.clamp
    assert clamp is not None and clamp.values.dtype == np.float32
    assert np.array_equal(clamp.mask, mask) and np.array_equal(clamp.values, values)
    assert np.array_equal(clamp.std, std)


def test_a_clamp_from_before_conditional_sampling_is_refused() -> None:
    clamp = {"mask": "gA==", "values": "AAAAAAAAAAA=", "shape": [1, 2]}
    with pytest.raises(ValueError, match="earlier version"):
        load_plan(orjson.dumps({**orjson.loads(STORED), "clamp": clamp}))


def test_a_plan_of_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="another version"):
        load_plan(dump_plan(PLAN).replace(b'"format":1', b'"format":2'))


def test_the_fingerprint_depends_on_weights_and_graphs_but_not_on_the_card(
    tiny_served: Model,
) -> None:
    m = tiny_served.manifest
    own = compute_fingerprint(m)
    assert compute_fingerprint(replace(m, files={**m.files, "card.md": "0"})) == own
    for name in ("weights.safetensors", m.graphs["gibbs"].file):
        assert compute_fingerprint(replace(m, files={**m.files, name: "0"})) != own


@given(st.integers(0, 30), st.integers(1, 12), st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_consecutive_calls_sample_the_steps_of_one_long_call(
    burn_in: int, thin: int, lengths: list[int]
) -> None:
    whole = StepRange(0, burn_in + sum(lengths), burn_in, thin)
    sampled: list[int] = []
    at = 0
    for length in lengths:
        part = StepRange(at, max(at, burn_in) + length, burn_in, thin)
        steps = [t for t in range(at + 1, part.to_step + 1) if part.is_sampled(t)]
        assert len(steps) == part.samples
        sampled, at = sampled + steps, part.to_step
    assert at == whole.to_step
    assert sampled == [t for t in range(whole.to_step + 1) if whole.is_sampled(t)]
    assert sampled == list(range(burn_in + thin, at + 1, thin))
