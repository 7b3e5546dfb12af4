"""A plan comes back from its bytes as it was; a course keeps the same steps however it is cut."""

from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmoments.model import Model
from localmoments.transition import Clamp
from service.chains.call import Course
from service.chains.plan import Plan, dumps, fingerprint, loads

PLAN = Plan("m@1", "f", "gibbs", (0.1, 1 / 3), 0.25, 2**63 - 1, 2, 3, 4, "mean", "data")


def test_a_plan_survives_its_bytes() -> None:
    assert loads(dumps(PLAN)) == PLAN
    assert loads(dumps(PLAN)).walk.scale == (0.1, 1 / 3)


@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (2, 8), (2, 17)])
def test_a_clamp_survives_its_bytes(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((3 - rows, columns)) < 0.5
    values, std = rng.random((2, rows, columns)).astype(np.float32)
    clamp = Clamp(mask, values, std)
    back = loads(dumps(replace(PLAN, clamp=clamp))).clamp
    assert back is not None and back.values.dtype == np.float32
    assert np.array_equal(back.mask, mask) and np.array_equal(back.values, clamp.values)
    assert np.array_equal(back.std, std)


def test_a_clamp_that_only_held_its_columns_is_refused_and_other_old_plans_are_read() -> None:
    """As they were written before clamps were conditional."""
    old = orjson.loads(dumps(PLAN))
    assert "metropolis" not in old and loads(orjson.dumps(old)) == PLAN
    clamp = {"mask": "gA==", "values": "AAAAAAAAAAA=", "shape": [1, 2]}
    with pytest.raises(ValueError, match="earlier version"):
        loads(orjson.dumps({**old, "clamp": clamp}))


def test_a_plan_keeps_its_metropolis_correction() -> None:
    assert loads(dumps(replace(PLAN, metropolis=True))).walk.metropolis


def test_a_plan_of_another_format_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="another version"):
        loads(dumps(PLAN).replace(b'"format":1', b'"format":2'))


def test_the_fingerprint_follows_what_computes(tiny_served: Model) -> None:
    m = tiny_served.manifest
    assert fingerprint(replace(m, files={**m.files, "card.md": "0"})) == fingerprint(m)
    for name in ("weights.safetensors", m.graphs["gibbs"].file):
        assert fingerprint(replace(m, files={**m.files, name: "0"})) != fingerprint(m)


@given(st.integers(0, 30), st.integers(1, 12), st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_a_course_in_pieces_keeps_what_the_whole_keeps(
    burn_in: int, thin: int, pieces: list[int]
) -> None:
    whole = Course(0, burn_in + sum(pieces), burn_in, thin)
    kept: list[int] = []
    at = 0
    for steps in pieces:
        part = Course(at, max(at, burn_in) + steps, burn_in, thin)
        mine = [t for t in range(at + 1, part.to_step + 1) if part.keeps(t)]
        assert len(mine) == part.kept
        kept, at = kept + mine, part.to_step
    assert at == whole.to_step
    assert kept == [t for t in range(whole.to_step + 1) if whole.keeps(t)]
    assert kept == list(range(burn_in + thin, at + 1, thin))
