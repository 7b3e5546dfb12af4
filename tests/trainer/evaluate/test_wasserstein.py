"""The sliced Wasserstein distance where it is known."""

import numpy as np
import pytest

from trainer.evaluate import sliced_wasserstein


def cloud(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


class TestSlicedWasserstein:
    def test_is_zero_for_the_same_set_in_any_order(self):
        a = cloud(300, 5)
        assert sliced_wasserstein(a, a) == 0
        assert sliced_wasserstein(a, a[::-1]) == pytest.approx(0, abs=1e-12)

    def test_is_symmetric(self):
        a, b = cloud(300, 5), 2 * cloud(200, 5, seed=1) + 1
        assert sliced_wasserstein(a, b) == pytest.approx(sliced_wasserstein(b, a), rel=1e-12)

    @pytest.mark.parametrize("shift", [0.5, -3.0])
    def test_is_the_shift_in_one_dimension(self, shift):
        a = cloud(500, 1)
        assert sliced_wasserstein(a, a + shift) == pytest.approx(abs(shift), rel=1e-12)

    def test_is_the_mean_absolute_difference_of_sorted_points_in_one_dimension(self):
        a, b = cloud(101, 1), 3 * cloud(101, 1, seed=1)
        expected = np.abs(np.sort(a[:, 0]) - np.sort(b[:, 0])).mean()
        assert sliced_wasserstein(a, b) == pytest.approx(expected, rel=1e-12)

    def test_counts_a_point_by_its_share_and_not_by_its_number(self):
        a, b = np.array([[0.0], [1.0]]), np.array([[0.0], [0.0], [1.0], [1.0]])
        assert sliced_wasserstein(a, b) == sliced_wasserstein(b, a) == 0

    def test_of_two_gaussians_is_the_difference_of_widths(self):
        """W₁(N(0, s²), N(0, t²)) = |s - t| √(2/π), the same along every direction."""
        a, b = cloud(20_000, 3), 2.5 * cloud(20_000, 3, seed=1)
        assert sliced_wasserstein(a, b) == pytest.approx(1.5 * np.sqrt(2 / np.pi), rel=0.03)

    def test_of_a_shift_in_d_dimensions_is_its_mean_projection(self):
        """E|v·e| over the sphere in d = 3 is 1/2."""
        a = cloud(200, 3)
        moved = sliced_wasserstein(a, a + np.array([0, 0, 4.0]))
        assert moved == pytest.approx(4 * 0.5, rel=0.1)
