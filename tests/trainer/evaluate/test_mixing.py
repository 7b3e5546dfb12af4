"""Mixing of chains whose mixing is known."""

import numpy as np
import pytest

from trainer.evaluate.features import Principal, principal
from trainer.evaluate.mixing import Scalars, autocorrelation, mixing, settled


def autoregressive(rho, T=2_000, W=20, seed=0):
    """x' = ρ x + √(1 - ρ²) ε, started at equilibrium; (T, W, 1)."""
    rng = np.random.default_rng(seed)
    x = [rng.standard_normal(W)]
    for _ in range(T - 1):
        x.append(rho * x[-1] + np.sqrt(1 - rho**2) * rng.standard_normal(W))
    return np.stack(x)[:, :, None]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_an_autoregressive_chain_is_worth_its_known_number_of_draws(rho):
    """n (1 - ρ) / (1 + ρ)"""
    found = mixing(autoregressive(rho), ("x",))["x"]
    expected = 40_000 * (1 - rho) / (1 + rho)
    assert found["bulk ESS"] == pytest.approx(expected, rel=0.15)
    assert found["tail ESS"] > 0 and found["split R-hat"] == pytest.approx(1, abs=0.02)


def test_chains_that_stay_apart_have_a_large_r_hat_and_no_falling_correlation():
    apart = autoregressive(0) + 5 * (np.arange(20) % 2)[None, :, None]
    assert mixing(apart, ("x",))["x"]["split R-hat"] > 1.5
    assert autocorrelation(apart, 50)[50, 0] > 0.8


def test_a_chain_that_stands_still_has_no_figures():
    assert mixing(np.ones((100, 4, 1)), ("x",)) == {}


def test_autocorrelation_is_a_power_of_rho():
    rho = autocorrelation(autoregressive(0.8, T=8_000), 10)[:, 0]
    assert rho == pytest.approx(0.8 ** np.arange(11), abs=0.03)


def test_settled_is_the_first_step_at_the_final_level():
    steps = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert settled(steps, [9, 5, 2, 0.1, 0.11, 0.1, 0.09, 0.1, 0.1]) == 8
    assert settled(steps, [0.1] * 9) == 1
    assert settled(steps, [9, 8, 7, 6, 5, 4, 3, 2, 1]) is None


def test_scalars_are_components_and_the_squared_distance_from_the_mean():
    x = np.random.default_rng(0).standard_normal((500, 5)).astype(np.float32) * [3, 2, 1, 0.5, 0.1]
    scalar = Scalars(principal(x.astype(np.float32) + 7))
    values = scalar(x.astype(np.float32) + 7)
    assert values.shape == (500, 4) and len(scalar.names) == 4
    assert np.abs(values[:, :3].mean(0)) == pytest.approx(0, abs=1e-4)
    assert values[:, 3] == pytest.approx(((x - x.mean(0)) ** 2).sum(1), rel=1e-3)


def test_principal_axes_are_orthonormal_and_fewer_than_the_rows():
    p = principal(np.random.default_rng(0).random((10, 100)).astype(np.float32))
    assert isinstance(p, Principal) and p.axes.shape == (9, 100)
    assert p.axes @ p.axes.T == pytest.approx(np.eye(9), abs=1e-5)
