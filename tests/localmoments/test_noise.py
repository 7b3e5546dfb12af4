"""Noise is a pure function of (seed, step, stream), for ever."""

import numpy as np
import pytest

from localmoments.noise import FLOOR_NOISE, START_NOISE, STEP_NOISE, normals


def test_the_values_are_pinned() -> None:
    """Chains outlive library versions: a NumPy that drew others would break every resumed one."""
    rows = [[-0.94810915, 0.03437863, 0.57213104], [-0.405888, 0.06613377, 2.1082444]]
    assert np.array_equal(normals(2014, 3, (2, 3)), np.array(rows, np.float32))
    start = [[-1.4242276, -0.651438, -0.07408637]]
    assert np.array_equal(normals(2**64 + 5, 0, (1, 3), START_NOISE), np.array(start, np.float32))


def test_the_same_question_has_the_same_answer() -> None:
    first = normals(7, 3, (5, 4))
    normals(8, 1, (100, 4))
    assert np.array_equal(normals(7, 3, (5, 4)), first)
    assert first.dtype == np.float32


@pytest.mark.parametrize("rows", [1, 2, 63])
def test_a_row_is_the_same_however_many_are_asked_for(rows: int) -> None:
    assert np.array_equal(normals(7, 3, (rows, 5)), normals(7, 3, (64, 5))[:rows])


def test_seeds_steps_and_streams_all_differ() -> None:
    seeds = (0, 1, 2**32, 2**64 - 1, 2**64, 2**64 + 1, 2**127)
    streams = (STEP_NOISE, FLOOR_NOISE, START_NOISE)
    drawn = {
        (seed, step, stream): normals(seed, step, (50,), stream)
        for seed in seeds
        for step in (0, 1, 2, 2**40)
        for stream in streams
    }
    values = np.stack(list(drawn.values())).astype(np.float64)  # (84, 50)
    assert len(np.unique(values)) > 0.99 * values.size
    correlation = np.corrcoef(values) - np.eye(len(values))
    assert np.abs(correlation).max() < 0.65  # 4.6 standard errors


def test_they_are_standard_normal() -> None:
    x = np.concatenate([normals(3, step, (1000, 10)).ravel() for step in range(40)])
    x = x.astype(np.float64)
    n = len(x)
    assert abs(x.mean()) < 4 / n**0.5
    assert abs(x.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs((x**4).mean() - 3) < 4 * (96 / n) ** 0.5
    between = np.corrcoef(normals(3, 0, (20_000,)), normals(3, 1, (20_000,)))[0, 1]
    assert abs(between) < 4 / 20_000**0.5
