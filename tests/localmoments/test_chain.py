"""A chain's promises, on a real model: repeatable, resumable, the same alone or in company."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from localmoments.arrays import Floats
from localmoments.chain import advance, encode_state, make_transition, positions
from localmoments.chain_state import Transition
from localmoments.model import Model
from localmoments.noise import FLOOR_NOISE, normals
from trainer.chain_kernels import KERNELS


@pytest.fixture
def x(tiny_served: Model) -> Floats:
    """Sixty-four points near the data."""
    starts = np.tile(tiny_served.start_points(), (10, 1))[:64]
    return starts + 0.1 * normals(5, 0, starts.shape)


@pytest.mark.parametrize("kernel", KERNELS)
def test_resumed_chain_equals_uninterrupted_chain(
    tiny_served: Model, x: Floats, kernel: str
) -> None:
    walk = make_transition(tiny_served, seed=11, kernel=kernel)
    start = encode_state(tiny_served, kernel, x[:5])
    whole = list(positions(tiny_served, walk, start, 6))
    assert [p.step for p in whole] == [1, 2, 3, 4, 5, 6]
    for before, after in pairwise(whole):
        again = advance(tiny_served, walk, before.state, before.step)
        assert again.step == after.step
        assert np.array_equal(again.state, after.state)
        assert np.array_equal(again.mean, after.mean)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [1, 2, 7, 33])
def test_rows_have_the_same_bits_alone_or_with_others(
    tiny_served: Model, x: Floats, kernel: str, rows: int
) -> None:
    walk = make_transition(tiny_served, seed=11, kernel=kernel)
    crowd = encode_state(tiny_served, kernel, x)
    alone = encode_state(tiny_served, kernel, x[:rows])
    assert np.array_equal(alone, crowd[:rows])
    for few, all_of_them in zip(
        positions(tiny_served, walk, alone, 3), positions(tiny_served, walk, crowd, 3), strict=True
    ):
        assert np.array_equal(few.state, all_of_them.state[:rows])
        assert np.array_equal(few.mean, all_of_them.mean[:rows])


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_position_has_a_state_and_two_emissions(
    tiny_served: Model, x: Floats, kernel: str
) -> None:
    walk = make_transition(tiny_served, seed=3, kernel=kernel)
    position = advance(tiny_served, walk, encode_state(tiny_served, kernel, x), 0)
    assert position.state.shape == (64, tiny_served.manifest.state_dims(kernel))
    assert position.mean.shape == position.noisy.shape == (64, 8)
    assert all(np.isfinite(a).all() for a in (position.state, position.mean, position.noisy))
    hidden = tiny_served.manifest.kernels[kernel].space == "hidden"
    assert position.noisy is (position.mean if hidden else position.state)


def test_the_default_walk_is_the_models_own(tiny_served: Model) -> None:
    manifest = tiny_served.manifest
    assert make_transition(tiny_served, seed=4) == Transition("gibbs", 4, (1.0,))
    for name, kernel in manifest.kernels.items():
        assert make_transition(tiny_served, seed=4, kernel=name).scale == (kernel.scale,)


def test_a_hidden_chain_starts_at_the_points_representation(tiny_served: Model, x: Floats) -> None:
    encoded = tiny_served.run("encode", x=x, **tiny_served.noise_level(64))["hidden"]
    assert np.array_equal(encode_state(tiny_served, "hidden", x), encoded)
    assert encode_state(tiny_served, "gibbs", x) is x


def test_seeds_and_steps_give_other_noise(tiny_served: Model, x: Floats) -> None:
    walk = make_transition(tiny_served, seed=1)
    first = advance(tiny_served, walk, x, 0).state
    assert not np.array_equal(advance(tiny_served, walk, x, 1).state, first)
    assert not np.array_equal(advance(tiny_served, replace(walk, seed=2), x, 0).state, first)
    assert np.array_equal(advance(tiny_served, walk, x, 0).state, first)


def test_scales_are_cycled_through_step_by_step(tiny_served: Model, x: Floats) -> None:
    cycled = Transition("gibbs", 1, (1.0, 0.4, 0.7))
    for step, scale in enumerate((1.0, 0.4, 0.7, 1.0, 0.4)):
        one = advance(tiny_served, Transition("gibbs", 1, (scale,)), x, step)
        assert np.array_equal(advance(tiny_served, cycled, x, step).state, one.state)


@pytest.mark.parametrize("kernel", ["gibbs", "hidden"])
def test_a_floor_adds_its_own_noise_to_the_state(
    tiny_served: Model, x: Floats, kernel: str
) -> None:
    walk = make_transition(tiny_served, seed=1, kernel=kernel)
    state = encode_state(tiny_served, kernel, x)
    plain = advance(tiny_served, walk, state, 9)
    floored = advance(tiny_served, replace(walk, floor=0.25), state, 9)
    noise = normals(1, 9, state.shape, FLOOR_NOISE)
    np.testing.assert_allclose(floored.state - plain.state, 0.25 * noise, atol=1e-5)
    assert floored.state.dtype == np.float32
    assert np.array_equal(floored.mean, plain.mean)
    own = normals(1, 9, (64, tiny_served.manifest.kernels[kernel].noise))
    assert abs(np.corrcoef(own[:, 0], noise[:, 0])[0, 1]) < 0.6  # not the step's own noise again
