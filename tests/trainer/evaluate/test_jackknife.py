"""Error bars: what the jackknife says is what repeating the whole experiment shows."""

import numpy as np
import pytest

from trainer.evaluate.comparison import make_reference
from trainer.evaluate.jackknife import GROUPS, combine, deal_groups, jackknife_variance
from trainer.evaluate.parzen import estimate_parzen


class Same:
    description = "the rows"

    def __call__(self, x):
        return x


def chains(W, T, rho, seed, d=4):
    """W autoregressive chains at equilibrium, T samples of each; rows (T W, d) and their chains."""
    rng = np.random.default_rng(seed)
    x = [rng.standard_normal((W, d))]
    for _ in range(T - 1):
        x.append(rho * x[-1] + np.sqrt(1 - rho**2) * rng.standard_normal((W, d)))
    return np.concatenate(x).astype(np.float32), np.tile(np.arange(W), T)


def test_a_unit_is_in_one_group_and_groups_are_alike():
    units = np.tile(np.arange(100), 7)
    groups = deal_groups(units)
    assert all(len(set(groups[units == u])) == 1 for u in range(100))
    assert np.bincount(groups).tolist() == [35] * GROUPS
    assert np.bincount(deal_groups(np.arange(3))).tolist() == [1, 1, 1]


def test_of_a_mean_the_jackknife_is_the_standard_error():
    x = np.random.default_rng(0).standard_normal(20)
    without = (x.sum() - x) / 19
    assert jackknife_variance(without) == pytest.approx(x.var(ddof=1) / 20)
    assert combine(x.mean(), without).error == pytest.approx(x.std(ddof=1) / np.sqrt(20))
    assert jackknife_variance(np.array([3.0])) == 0


EXPERIMENTS = 40


@pytest.fixture
def few_draws(monkeypatch):
    monkeypatch.setattr("trainer.evaluate.comparison.MOST_DRAWS", 5)


def ratio(estimates):
    """The error that was reported over the one that was made."""
    values, errors = ([getattr(e, name) for e in estimates] for name in ("value", "error"))
    return np.sqrt(np.mean(np.square(errors))) / np.std(values, ddof=1)


@pytest.mark.parametrize("rho", [0.0, 0.9])
@pytest.mark.parametrize("scale, most", [(0.7, 1.8), (1.0, 2.6)])
def test_errors_are_those_of_repeated_experiments(rho, scale, most, few_draws):
    """New chains and new real rows each time, slow chains too. Where the law is right the figures
    are at their best value and scatter less than the jackknife says: it errs on the safe side."""
    found = []
    for seed in range(EXPERIMENTS):
        real, _ = chains(400, 1, 0, 1_000 + seed)
        samples, units = chains(40, 10, rho, seed)
        found.append(make_reference(real, Same(), 200).compare(scale * samples + 1 - scale, units))
    for name in found[0]:
        assert 0.6 < ratio([f[name] for f in found]) < most, name


def test_slow_chains_do_not_add_to_the_kernel_distance(few_draws):
    """Pairs of one chain are alike and are left out, so the mean is 0 also for a slow sampler."""
    found = []
    for seed in range(EXPERIMENTS):
        reference = make_reference(chains(400, 1, 0, 1_000 + seed)[0], Same(), 200)
        found.append(reference.compare(*chains(20, 20, 0.97, seed))["kernel distance"].value)
    assert abs(np.mean(found)) < 3 * np.std(found) / np.sqrt(EXPERIMENTS)


@pytest.mark.parametrize("rho", [0.0, 0.95])
def test_the_error_of_a_log_likelihood_has_the_samplers_part(rho):
    validation = chains(300, 1, 0, 5_000)[0]
    found = []
    for seed in range(EXPERIMENTS):
        test = chains(2_000, 1, 0, 1_000 + seed)[0]
        found.append(estimate_parzen(test, validation, *chains(40, 10, rho, seed)).estimate)
    assert 0.6 < ratio(found) < 1.7
