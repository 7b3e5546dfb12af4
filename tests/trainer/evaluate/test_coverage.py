"""Density and coverage where they are known."""

import numpy as np
import pytest

from trainer.evaluate.coverage import density_and_coverage


def cloud(n, d=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def brute_force(real, samples, k):
    among = np.linalg.norm(real[:, None] - real, axis=2)
    radius = np.sort(among, axis=1)[:, k]
    within = np.linalg.norm(real[:, None] - samples, axis=2) <= radius[:, None]
    return within.sum() / (k * len(samples)), within.any(axis=1).mean()


def test_a_set_covers_itself():
    x = cloud(300)
    assert density_and_coverage(x, x)[1] == 1


def test_what_is_far_away_covers_nothing():
    assert density_and_coverage(cloud(300), cloud(200, seed=1) + 100) == (0, 0)


@pytest.mark.parametrize("k", [1, 5])
def test_equals_brute_force(k):
    real, samples = cloud(120), 0.7 * cloud(90, seed=1)
    assert density_and_coverage(real, samples, k) == pytest.approx(brute_force(real, samples, k))


def test_new_rows_of_the_same_law_have_density_one_and_the_known_coverage():
    """E[coverage] = 1 - (n-1)…(n-k)/((2n-1)…(2n-k)) for n = m, which is about 1 - 2⁻ᵏ."""
    n, k = 2_000, 5
    density, coverage = density_and_coverage(cloud(n), cloud(n, seed=1))
    missed = np.prod([(n - i) / (2 * n - i) for i in range(1, k + 1)])
    assert density == pytest.approx(1, abs=0.05)
    assert coverage == pytest.approx(1 - missed, abs=0.015)


def test_one_sample_repeated_is_dense_but_covers_little():
    real = cloud(500)
    middle = np.repeat(real[np.linalg.norm(real, axis=1).argmin()][None], 500, axis=0)
    density, coverage = density_and_coverage(real, middle)
    assert density > 0.5 and coverage < 0.05
