"""The kernel distance: brute force, unbiasedness, units."""

import numpy as np
import pytest

from trainer.evaluate.kid import kernel_distance


def cloud(n, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32) + 1


def test_equals_brute_force():
    x, y = cloud(7), 2 * cloud(5, seed=1)
    unit = np.mean([np.linalg.norm(row) for row in x])

    def k(u, v):
        return (np.dot(u / unit, v / unit) / 6 + 1) ** 3

    xx = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    yy = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
    xy = np.mean([k(a, b) for a in x for b in y])
    assert kernel_distance(x, y) == pytest.approx(xx + yy - 2 * xy, rel=1e-5)


def test_is_zero_on_average_for_two_halves_of_one_set():
    """Unbiased: halves come out below zero about as often as above."""
    found = []
    for seed in range(200):
        x = cloud(60, seed=seed)
        found.append(kernel_distance(x[:30], x[30:]))
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found)) < 3 * error and min(found) < 0 < max(found)


def test_grows_with_the_shift_between_two_sets():
    x, y = cloud(400), cloud(400, seed=1)
    distances = [kernel_distance(x, y + shift) for shift in (0, 0.5, 1, 2)]
    assert distances == sorted(distances) and distances[1] > 5 * abs(distances[0])


def test_does_not_depend_on_the_units_of_the_features():
    x, y = cloud(50), cloud(50, seed=1) + 0.3
    assert kernel_distance(10 * x, 10 * y) == pytest.approx(kernel_distance(x, y), rel=1e-4)
