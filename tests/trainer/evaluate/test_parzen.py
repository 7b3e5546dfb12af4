"""The Parzen window against closed forms and brute force."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from trainer.evaluate.parzen import (
    bandwidth_curve,
    estimate_parzen,
    leave_out_means,
    log_likelihoods,
)


def cloud(n, d, seed=0, spread=1.0):
    x = spread * np.random.default_rng(seed).standard_normal((n, d))
    return x.astype(np.float32)


@pytest.mark.parametrize("h", [0.05, 0.2, 1.0])
def test_one_sample_is_a_gaussian_around_it(h):
    x, s = cloud(20, 7, spread=0.3), cloud(1, 7, seed=1)
    expected = multivariate_normal(s[0], h**2).logpdf(x)
    assert log_likelihoods(x, s, [h])[0] == pytest.approx(expected, rel=1e-4)


def test_many_samples_are_the_mean_of_their_gaussians():
    x, s = cloud(50, 5), cloud(300, 5, seed=1)
    each = norm.logpdf(x[:, None].astype(float), s, 0.3).sum(2)  # (n, m)
    expected = logsumexp(each, axis=1) - np.log(len(s))
    assert log_likelihoods(x, s, [0.3])[0] == pytest.approx(expected, rel=1e-4)


def test_a_row_far_from_all_samples_is_finite():
    far = log_likelihoods(np.full((1, 784), 1e3, np.float32), cloud(10, 784), [0.01])
    assert np.isfinite(far).all() and far < -1e9


def test_blocks_make_no_difference(monkeypatch):
    x, s = cloud(50, 5), cloud(300, 5, seed=1)
    whole = log_likelihoods(x, s, [0.2, 0.5])
    monkeypatch.setattr("trainer.evaluate.neighbours.BLOCK", 700)
    assert log_likelihoods(x, s, [0.2, 0.5]) == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("spread", [0.1, 0.4, 2.0])
def test_the_bandwidth_is_the_best_of_every_hundredth(spread):
    validation, s = cloud(200, 3, spread=spread), cloud(400, 3, seed=1, spread=spread)
    grid = np.arange(1, 101) / 100
    means = log_likelihoods(validation, s, grid.tolist()).mean(axis=1)
    curve = bandwidth_curve(validation, s)
    assert max(curve, key=curve.get) == pytest.approx(grid[means.argmax()], abs=1e-9)


def test_the_bandwidth_is_chosen_on_validation_and_not_on_test_rows():
    s, validation = cloud(400, 3, spread=0.1), cloud(200, 3, seed=1, spread=0.1)
    test = cloud(200, 3, seed=2, spread=0.5)
    curve = bandwidth_curve(validation, s)
    assert estimate_parzen(test, validation, s).bandwidth == max(curve, key=curve.get)
    assert estimate_parzen(test, test, s).bandwidth > estimate_parzen(test, validation, s).bandwidth


def test_the_error_is_that_over_test_rows_and_that_over_chains():
    test, validation, s = (cloud(n, 4, seed=n) for n in (100, 50, 200))
    chains = np.arange(200) % 10
    found = estimate_parzen(test, validation, s, chains)
    each = log_likelihoods(test, s, [found.bandwidth])[0]
    left_out = [log_likelihoods(test, s[chains != c], [found.bandwidth]).mean() for c in range(10)]
    over_chains = 9 / 10 * np.square(left_out - np.mean(left_out)).sum()
    assert found.estimate.value == pytest.approx(each.mean())
    assert found.estimate.error**2 == pytest.approx(each.var(ddof=1) / 100 + over_chains, rel=1e-4)


def test_a_group_that_holds_the_whole_sum_can_be_left_out():
    """Row 0 is 40 bandwidths away from every sample but one."""
    test = np.zeros((1, 2), np.float32)
    s = np.array([[0, 0], [4, 0], [0, 4]], np.float32)
    each, without = leave_out_means(test, s, np.array([0, 1, 1]), 0.1)
    assert each == pytest.approx(log_likelihoods(test, s, [0.1])[0])
    expected = [log_likelihoods(test, rest, [0.1]).item() for rest in (s[1:], s[:1])]
    assert without == pytest.approx(expected) and without[0] < -700


def test_approaches_the_true_density_as_samples_grow():
    """E log p(x) of a Gaussian is its negative entropy."""
    test, validation, s = (cloud(n, 2, seed=n) for n in (2_000, 500, 8_000))
    entropy = multivariate_normal([0, 0], 1).entropy()
    found = estimate_parzen(test, validation, s).estimate
    assert found.value == pytest.approx(-entropy, abs=3 * found.error + 0.05)
