"""Mixing figures of chains whose mixing is known in closed form."""

import numpy as np
import pytest

from trainer.evaluate.features import fit_principal
from trainer.evaluate.mixing import Scalars, autocorrelation, burn_in, measure_mixing


def autoregressive(rho, T=2_000, W=20, seed=0):
    """x' = ρ x + √(1 - ρ²) ε, started at equilibrium; (T, W, 1)."""
    rng = np.random.default_rng(seed)
    x = [rng.standard_normal(W)]
    for _ in range(T - 1):
        x.append(rho * x[-1] + np.sqrt(1 - rho**2) * rng.standard_normal(W))
    return np.stack(x)[:, :, None]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_effective_sample_size_of_an_autoregressive_chain_is_the_known_one(rho):
    """n (1 - ρ) / (1 + ρ)"""
    found = measure_mixing(autoregressive(rho), ("x",))["x"]
    expected = 40_000 * (1 - rho) / (1 + rho)
    assert found["bulk ESS"] == pytest.approx(expected, rel=0.15)
    assert found["tail ESS"] > 0 and found["split R-hat"] == pytest.approx(1, abs=0.02)


def test_chains_that_stay_apart_have_a_large_r_hat_and_a_flat_autocorrelation():
    apart = autoregressive(0) + 5 * (np.arange(20) % 2)[None, :, None]
    assert measure_mixing(apart, ("x",))["x"]["split R-hat"] > 1.5
    assert autocorrelation(apart, 50)[50, 0] > 0.8


def test_a_chain_that_stands_still_has_no_figures():
    assert measure_mixing(np.ones((100, 4, 1)), ("x",)) == {}


def test_autocorrelation_is_a_power_of_rho():
    rho = autocorrelation(autoregressive(0.8, T=8_000), 10)[:, 0]
    assert rho == pytest.approx(0.8 ** np.arange(11), abs=0.03)


STEPS = [1, 2, 4, 7, 12, 20, 35, 60, *range(65, 116, 5)]


def stationary(kind, rho, seed, W=60, f=8):
    """Walkers at equilibrium: each keeps its place with probability ρ; (T, W, f)."""
    rng = np.random.default_rng(seed)

    def draw():
        x = rng.standard_normal((W, f))
        return np.maximum(x, 0) if kind == "one-sided" else x

    x, kept = draw(), []
    for step in range(1, STEPS[-1] + 1):
        x = np.where(rng.random((W, 1)) < rho, x, draw())
        if step in STEPS:
            kept.append(x)
    return np.stack(kept).astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "one-sided"])
@pytest.mark.parametrize("rho", [0.0, 0.8, 0.98])
def test_a_stationary_run_has_no_burn_in(kind, rho):
    """White or slow: the first step in at least 95 % of the runs, "over" in at most 5 %."""
    found = [burn_in(STEPS, stationary(kind, rho, seed)).settled for seed in range(40)]
    assert np.mean([step == 1 for step in found]) >= 0.95
    assert np.mean([step is None for step in found]) <= 0.05


def relaxing(tau, seed, W=100, away=3.0):
    """x' = ρ x + √(1 - ρ²) ε with ρ = exp(-1/τ), started 3 standard deviations away; (T, W, 1)."""
    early = np.unique(np.geomspace(1, 20 * tau, 36).round().astype(int)).tolist()
    steps = [*early, *range(21 * tau, 39 * tau, tau)]
    rng, rho = np.random.default_rng(seed), np.exp(-1 / tau)
    x, kept = away + rng.standard_normal((W, 1)), []
    for step in range(1, steps[-1] + 1):
        x = rho * x + np.sqrt(1 - rho**2) * rng.standard_normal((W, 1))
        if step in steps:
            kept.append(x)
    return steps, np.stack(kept).astype(np.float32)


@pytest.mark.parametrize("tau", [5, 20])
def test_the_burn_in_of_a_relaxing_run_is_its_relaxation_time(tau):
    """N(δ, 1) is at the kernel distance 12δ² + 9δ⁴ + δ⁶ from N(0, 1), and δ = 3 exp(-t/τ)."""
    for seed in range(5):
        found = burn_in(*relaxing(tau, seed))
        delta = np.sqrt(max(np.real(z) for z in np.roots([1, 9, 12, -found.limit])))
        expected = tau * np.log(3 / delta)
        assert expected / 2 < found.settled < 2 * expected
        assert tau / 2 < found.settled < 3 * tau


def test_a_run_that_still_moves_at_its_end_has_no_burn_in_yet():
    """By one and a half standard deviations during the last third, and more before."""
    away = np.linspace(4.5, 0, len(STEPS))[:, None, None]
    for seed in range(3):
        assert burn_in(STEPS, stationary("normal", 0, seed) + np.float32(away)).settled is None


def test_walkers_that_stand_still_have_settled():
    """All steps are the same, so every distance is that of the end to itself."""
    x = np.repeat(stationary("normal", 0, 0)[:1], len(STEPS), axis=0)
    found = burn_in(STEPS, x)
    assert found.distances == pytest.approx(np.zeros(len(STEPS)), abs=1e-6)
    assert found.settled == 1


def test_scalars_are_components_and_the_squared_distance_from_the_mean():
    x = np.random.default_rng(0).standard_normal((500, 5)).astype(np.float32) * [3, 2, 1, 0.5, 0.1]
    scalar = Scalars(fit_principal(x.astype(np.float32) + 7))
    values = scalar(x.astype(np.float32) + 7)
    assert values.shape == (500, 4) and len(scalar.names) == 4
    assert np.abs(values[:, :3].mean(0)) == pytest.approx(0, abs=1e-4)
    assert values[:, 3] == pytest.approx(((x - x.mean(0)) ** 2).sum(1), rel=1e-3)
