"""Clamped chains: on Gaussian data they draw from the conditional law; on any, they are repeatable.

`Normal` is a model whose local moments are those of N(0, C), which are known in closed form.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localmoments import matheron
from localmoments.arrays import Arrays, Doubles, Floats
from localmoments.chain import advance, encode_state, positions, step_cost
from localmoments.chain_state import Clamp, Transition
from localmoments.clamp import (
    RIDGE,
    WEIGHTED_DIMS,
    ConditionalStep,
    clamped_step,
    default_scale,
    noise_levels,
)
from localmoments.gaussian import Gaussian, Measurement, gain
from localmoments.model import Model


class Normal(Model):
    """r(x) = A x and A = C (C + σ²)⁻¹, at the noise level that it is told."""

    def __init__(self, like: Model, C: Doubles, low: float = 0.25, high: float = 1.0) -> None:
        manifest = replace(
            like.manifest, input_dims=len(C), sigma=0.5, alpha=0.25, noise_levels=(low, high)
        )
        super().__init__(Path(), manifest)
        self._C = C

    def run(self, graph: str, **inputs: Any) -> Arrays:
        assert graph == "moments"
        t = float(inputs["sigma"][0, 0])
        A = np.linalg.solve(self._C + t**2 * np.eye(len(self._C)), self._C)
        out = {"mean": inputs["x"] @ A, "products": inputs["v"] @ A}
        return {name: array.astype(np.float32) for name, array in out.items()}


def covariance(d: int, smallest: float = 0.1) -> Doubles:
    Q = np.linalg.qr(np.random.default_rng(d).standard_normal((d, d)))[0]
    return (Q * np.geomspace(smallest, 2.0, d)) @ Q.T


def clamp_of(mask: Any, values: Any, std: Any = 0.0) -> Clamp:
    mask = np.atleast_2d(np.asarray(mask, bool))
    values = np.atleast_2d(np.asarray(values, np.float32))
    return Clamp(mask, values, np.broadcast_to(np.float32(std), values.shape))


def walked(model: Model, walk: Transition, walkers: int, steps: int) -> Floats:
    """States after a burn-in of a third; (n, W, d)."""
    x = np.zeros((walkers, model.manifest.input_dims), np.float32)
    assert walk.clamp is not None
    each = positions(model, walk, walk.clamp.start(x), steps)
    return np.array([p.state for p in each if p.step > steps // 3])


def test_a_known_column_of_a_narrow_gaussian_fixes_the_other(tiny_served: Model) -> None:
    """ρ = 0.95 and σ = 0.5, where holding the column gave mean 0.77 and variance 0.32."""
    model = Normal(tiny_served, np.array([[1.0, 0.95], [0.95, 1.0]]))
    x = walked(model, Transition("gibbs", 1, (1.0,), 0.0, clamp_of([1, 0], [1.0, 0.0])), 300, 45)
    assert (x[..., 0] == 1.0).all()
    assert x[..., 1].mean() == pytest.approx(0.95, abs=0.02)
    assert x[..., 1].var() == pytest.approx(1 - 0.95**2, abs=0.01)


@pytest.mark.parametrize("kernel", ["gibbs", "moment"])
@pytest.mark.parametrize("d", [3, WEIGHTED_DIMS + 1])
@pytest.mark.parametrize("error", [0.0, 0.4])
def test_a_clamped_chain_has_the_conditional_mean(
    tiny_served: Model, d: int, kernel: str, error: float
) -> None:
    """And gibbs the covariance; moment keeps another one, with or without known columns."""
    rng = np.random.default_rng(d)
    model, mask = Normal(tiny_served, covariance(d)), rng.permutation(np.arange(d) < d // 2 + 1)
    values = 0.7 * rng.standard_normal(d)
    walk = Transition(kernel, 3, (1.0,), 0.0, clamp_of(mask, values, error))
    x = walked(model, walk, 80, 24)
    truth = Gaussian(np.zeros(d), covariance(d)).given(
        Measurement.of_columns(mask, values, np.full(d, error))
    )
    np.testing.assert_allclose(x.mean((0, 1)), truth.mean, atol=0.13)
    if kernel == "gibbs":
        spread = np.sqrt(np.diagonal(truth.covariance))
        free = spread > 1e-6
        np.testing.assert_allclose(x.std((0, 1))[free], spread[free], rtol=0.12)
    if error == 0:
        assert np.array_equal(
            x[..., mask], np.broadcast_to(np.float32(values[mask]), x[..., mask].shape)
        )


def test_known_columns_of_one_walker_are_its_own(tiny_served: Model) -> None:
    model = Normal(tiny_served, np.array([[1.0, 0.9], [0.9, 1.0]]))
    both = Clamp(np.array([[1, 0], [0, 1], [0, 0]], bool), np.float32([[1, 9], [9, -1], [9, 9]]),
                 np.zeros((1, 2), np.float32))  # fmt: skip
    each = [clamp_of(both.mask[i], both.values[i]) for i in range(3)]
    x = np.zeros((3, 2), np.float32)
    got = advance(model, Transition("gibbs", 1, (1.0,), 0.0, both), x, 0)
    assert got.state[0, 0] == 1 and got.state[1, 1] == -1 and np.abs(got.state).max() < 5
    alone = advance(model, Transition("gibbs", 1, (1.0,), 0.0, each[0]), x[:1], 0)
    assert np.array_equal(alone.state[0], got.state[0])


def test_a_path_on_gaussian_data_is_always_accepted(tiny_served: Model) -> None:
    """So no walker stays where it was."""
    model = Normal(tiny_served, covariance(4))
    walk = Transition("gibbs", 1, (2.0,), 0.0, clamp_of([1, 0, 1, 0], np.ones(4)))
    x = np.ones((200, 4), np.float32)
    after = advance(model, walk, x, 0).state
    assert (after[:, [1, 3]] != 1).all()


@pytest.mark.parametrize("d", [3, WEIGHTED_DIMS + 1])
def test_a_step_from_one_point_has_the_law_of_the_whole_path(tiny_served: Model, d: int) -> None:
    """On Gaussian data, coming down the levels from t is X given x + tε and the known columns."""
    rng, t = np.random.default_rng(d), 2.0
    mask, values = rng.permutation(np.arange(d) < d // 2 + 1), rng.standard_normal(d)
    x, W = 2.0 * rng.standard_normal(d), 4000
    walk = Transition("gibbs", 5, (t / 0.5,), 0.0, clamp_of(mask, values))
    start = clamp_of(mask, values).start(np.tile(x, (W, 1)).astype(np.float32))
    C, u = covariance(d), ~mask
    got = advance(Normal(tiny_served, C, high=t), walk, start, 0).state[:, u]
    A = np.linalg.solve(C + t**2 * np.eye(d), C)
    seen = Measurement.of_columns(mask, values, np.zeros(d))
    given = Gaussian(start[0].astype(np.float64) @ A, t**2 * A).given(seen)
    F = (A - gain(t**2 * A, seen) @ seen.H @ A)[u]  # how X follows x + tε
    V = given.covariance[u][:, u] + t**2 * F @ F.T
    e = np.linalg.solve(np.linalg.cholesky(V), (got - given.mean[u]).T)  # (u, W), N(0, I)
    z = np.sqrt(W) * np.concatenate([e.mean(1), ((e @ e.T) / W - np.eye(u.sum())).ravel() / 2**0.5])
    assert np.sqrt(np.mean(z**2)) < 1.5 and np.abs(z).max() < 5


def test_the_ridge_is_what_the_least_variance_lacks(tiny_served: Model) -> None:
    """So it is nothing where P is well conditioned, and all of τ² where P is singular."""
    clamp, t = clamp_of([1, 1, 0], np.zeros(3)), 0.5
    walk, state = Transition("gibbs", 1, (1.0,), 0.0, clamp), np.zeros((3, 3), np.float32)
    τ2 = (RIDGE * t) ** 2
    least = np.array([2 * τ2, 0.25 * τ2, 0.0])
    P = np.eye(3) * np.stack([np.ones(3), np.ones(3), least], axis=1)[:, None]
    step = ConditionalStep(tiny_served, walk, clamp, state, 0)
    seen = step.measure(Gaussian(np.zeros((3, 3)), P), t)
    wanted = np.array([0.0, 0.75, 1.0])[:, None] * τ2 * np.array([1.0, 1.0, 0.0])
    np.testing.assert_allclose(seen.variance, wanted, atol=1e-15)


@pytest.fixture
def x(tiny_served: Model) -> Floats:
    return np.tile(tiny_served.start_points(), (10, 1))[:64]


@pytest.mark.parametrize("kernel", ["gibbs", "moment"])
@pytest.mark.parametrize("std", [0.0, 0.2])
def test_a_resumed_clamped_chain_equals_an_uninterrupted_one(
    tiny_served: Model, x: Floats, kernel: str, std: float
) -> None:
    walk = Transition(kernel, 11, (1.0, 0.5), 0.01, clamp_of(np.arange(8) < 3, x[0], std))
    start = encode_state(tiny_served, kernel, x[:5], walk.clamp)
    for before, after in pairwise(positions(tiny_served, walk, start, 4)):
        again = advance(tiny_served, walk, before.state, before.step)
        assert np.array_equal(again.state, after.state)
        assert np.array_equal(again.mean, after.mean)


@pytest.mark.parametrize("kernel", ["gibbs", "moment"])
@pytest.mark.parametrize("rows", [1, 7, 33])
def test_clamped_rows_have_the_same_bits_alone_or_with_others(
    tiny_served: Model, x: Floats, kernel: str, rows: int
) -> None:
    walk = Transition(kernel, 11, (1.0,), 0.0, clamp_of(np.arange(8) < 3, x[0]))
    for few, all_of_them in zip(
        positions(tiny_served, walk, x[:rows], 3), positions(tiny_served, walk, x, 3), strict=True
    ):
        assert np.array_equal(few.state, all_of_them.state[:rows])
        assert np.array_equal(few.mean, all_of_them.mean[:rows])


def test_the_levels_of_a_step_come_down_to_the_lowest_trained_one(tiny_served: Model) -> None:
    m = replace(tiny_served.manifest, sigma=0.2, noise_levels=(0.1, 0.5))
    assert noise_levels(m, 2.5) == (0.5, 0.25, 0.125, 0.1)
    assert noise_levels(m, 2.0) == (0.4, 0.2, 0.1)
    assert noise_levels(m, 0.4) == pytest.approx((0.08,))
    assert default_scale(m, "gibbs") == 2.5
    assert default_scale(m, "moment") == m.kernels["moment"].scale
    single = replace(m, noise_levels=None)
    assert noise_levels(single, 2.0) == (0.4,)
    assert default_scale(single, "gibbs") == m.kernels["gibbs"].scale


@pytest.mark.parametrize("d", [4, 40, 150])
@pytest.mark.parametrize("kernel", ["gibbs", "moment"])
def test_a_step_costs_the_calls_that_it_makes(tiny_served: Model, d: int, kernel: str) -> None:
    model = Normal(tiny_served, covariance(d))
    clamp = clamp_of(np.arange(d) < 2, np.zeros(d))
    walk, state = Transition(kernel, 1, (2.0,), 0.0, clamp), np.zeros((2, d), np.float32)
    calls, made = clamped_step(model, walk, clamp, state, 0), 0
    call = next(calls)
    with pytest.raises(StopIteration):
        while True:
            made, outputs = made + 1, model.run(call.graph, **call.inputs)
            call = calls.send(outputs)
    assert made == step_cost(model, walk)
    assert step_cost(model, Transition(kernel, 1, (1.0,))) == 1


def test_products_alone_give_the_conditional_mean(tiny_served: Model) -> None:
    """150 columns around a space of three: within the ridge, the dense algebra's answer."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((150, 3)))[0]
    C = (U * np.array([30.0, 10.0, 4.0])) @ U.T + 1e-4 * np.eye(150)
    model = Normal(tiny_served, C)
    mask, hidden = np.arange(150) < 75, C @ rng.standard_normal(150)
    walk = Transition("gibbs", 3, (2.0,), 0.0, clamp_of(mask, hidden))
    x = walked(model, walk, 40, 9)
    truth = Gaussian(np.zeros(150), C).given(Measurement.of_columns(mask, hidden, np.zeros(150)))
    off = np.linalg.norm(x.mean((0, 1)) - truth.mean) / np.linalg.norm(truth.mean[~mask])
    assert off < 0.05
    assert np.array_equal(x[..., mask], np.broadcast_to(np.float32(hidden[mask]), (6, 40, 75)))


def test_columns_known_up_to_different_errors_are_weighed_by_them(tiny_served: Model) -> None:
    """Errors over four decades: a few rounds of conjugate gradients still solve the system."""
    rng = np.random.default_rng(2)
    U = np.linalg.qr(rng.standard_normal((150, 10)))[0]
    model = Normal(tiny_served, (U * np.geomspace(30.0, 1.0, 10)) @ U.T)
    at = matheron.LocalProducts(model, np.zeros((1, 150), np.float32), 1.0, 1.0)
    mask = (np.arange(150) < 100).astype(float)[None]
    y, std = 3 * rng.standard_normal((1, 150)), 10 ** rng.uniform(-2, 2, (1, 150))
    none = np.zeros((1, 150))
    calls = matheron.draw_given(at, mask, y, std**2, none + 1e-9, none)
    call = next(calls)
    while True:
        try:
            call = calls.send(model.run(call.graph, **call.inputs))
        except StopIteration as end:
            _, mean = end.value
            break
    level = model.noise_level(1, 1.0)
    products = model.run("moments", x=at.x, v=np.eye(150, dtype=np.float32)[None], **level)
    r, A = products["mean"][0].astype(float), products["products"][0].astype(float)
    k = np.flatnonzero(mask[0])
    K = A[np.ix_(k, k)] + np.diag(std[0, k] ** 2 + matheron.RIDGE**2)
    expected = r + A[:, k] @ np.linalg.solve(K, y[0, k] - r[k])
    assert np.linalg.norm(mean[0] - expected) < 0.1 * np.linalg.norm(expected)


def test_a_draw_by_products_has_the_covariance_of_the_local_gaussian(tiny_served: Model) -> None:
    """With nothing known, Matheron's rule leaves a draw from N(r, t²A)."""
    rng = np.random.default_rng(1)
    U = np.linalg.qr(rng.standard_normal((150, 3)))[0]
    model = Normal(tiny_served, (U * np.array([30.0, 3.0, 0.5])) @ U.T)
    W, none = 1500, np.zeros((1500, 150))
    at = matheron.LocalProducts(model, np.zeros((W, 150), np.float32), 1.0, 1.0)
    calls = matheron.draw_given(at, none, none, none, *rng.standard_normal((2, W, 150)))
    call = next(calls)
    while True:
        try:
            call = calls.send(model.run(call.graph, **call.inputs))
        except StopIteration as end:
            drawn, mean = end.value
            break
    assert np.array_equal(mean, none)
    np.testing.assert_allclose((drawn @ U).var(0), [30 / 31, 3 / 4, 0.5 / 1.5], rtol=0.15)
    assert np.abs(drawn - drawn @ U @ U.T).max() < 1e-2
