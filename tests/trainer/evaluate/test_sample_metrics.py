"""Distances between samples and real rows: brute force, closed forms, and sets that a person would
reject at sight."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from trainer.evaluate.comparison import make_reference
from trainer.evaluate.sample_metrics import (
    density_and_coverage,
    frechet_distance,
    kernel_distance,
    sliced_wasserstein,
)


def cloud(n, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


class Same:
    """Rows are their own features."""

    description = "the rows"

    def __call__(self, x):
        return x


MIDDLES = np.kron(np.eye(10, dtype=np.float32), np.full((1, 2), 3, np.float32))  # (10, 20)


def classes(n, seed=0):
    """Ten classes, each with features of its own, none negative: as a classifier's last layer."""
    rng = np.random.default_rng(seed)
    which = rng.integers(10, size=n)
    x = MIDDLES[which] + rng.standard_normal((n, 20))
    return np.maximum(x, 0).astype(np.float32), which


class TestKernelDistance:
    def test_equals_brute_force(self):
        x, y = cloud(7) + 1, 2 * cloud(5, seed=1)
        unit = np.sqrt(np.mean(x**2))

        def k(u, v):
            return (np.dot(u / unit, v / unit) / 6 + 1) ** 3

        xx = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
        yy = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
        xy = np.mean([k(a, b) for a in x for b in y])
        assert kernel_distance(x, y) == pytest.approx(xx + yy - 2 * xy, rel=1e-5)

    @pytest.mark.parametrize("shift, scale", [(0.3, 1.0), (0.0, 0.5), (0.2, 1.3)])
    def test_of_two_gaussians_is_the_distance_of_their_first_three_moments(self, shift, scale):
        """For f = 1, k(u, v) = 1 + 3uv + 3u²v² + u³v³, so the distance is
        3(Δm₁)² + 3(Δm₂)² + (Δm₃)² with mᵢ = E uⁱ."""

        def moments(m, s):
            return np.array([m, m**2 + s**2, m**3 + 3 * m * s**2])

        rng = np.random.default_rng(0)
        x = rng.standard_normal((8_000, 1)).astype(np.float32)
        y = (shift + scale * rng.standard_normal((8_000, 1))).astype(np.float32)
        expected = np.square(moments(0, 1) - moments(shift, scale)) @ [3, 3, 1]
        assert kernel_distance(x, y) == pytest.approx(expected, rel=0.2)

    def test_is_zero_on_average_for_two_halves_of_one_set(self):
        """Unbiased: halves come out below zero about as often as above."""
        found = []
        for seed in range(200):
            x = cloud(60, seed=seed) + 1
            found.append(kernel_distance(x[:30], x[30:]))
        error = np.std(found) / np.sqrt(len(found))
        assert abs(np.mean(found)) < 3 * error and min(found) < 0 < max(found)

    def test_does_not_depend_on_the_units_of_the_features(self):
        x, y = cloud(50), cloud(50, seed=1) + 0.3
        assert kernel_distance(10 * x, 10 * y) == pytest.approx(kernel_distance(x, y), rel=1e-4)


class TestFrechetDistance:
    def test_equals_the_formula_with_a_matrix_root(self):
        x, y = cloud(300) + 1, cloud(200, seed=1) @ np.diag([2, 1, 1, 0.5, 1, 1]).astype("f4")
        unit = np.sqrt(np.mean(x**2))
        a, b = x / unit, y / unit
        C, D = np.cov(a.T), np.cov(b.T)
        expected = np.sum((a.mean(0) - b.mean(0)) ** 2)
        expected += np.trace(C + D - 2 * np.real(sqrtm(C @ D)))
        assert frechet_distance(x, y) == pytest.approx(expected, rel=1e-4)

    def test_of_a_set_with_itself_is_zero(self):
        assert frechet_distance(cloud(300), cloud(300)) == pytest.approx(0, abs=1e-5)

    @pytest.mark.parametrize("scale", [0.5, 0.8, 1.5])
    def test_of_two_isotropic_gaussians_is_that_of_their_widths(self, scale):
        """f (s - t)² for N(0, s²) and N(0, t²)."""
        x, y = cloud(20_000), scale * cloud(20_000, seed=1)
        assert frechet_distance(x, y) == pytest.approx(6 * (1 - scale) ** 2, rel=0.05)

    def test_fewer_rows_than_features_are_allowed(self):
        assert np.isfinite(frechet_distance(cloud(5, 20), cloud(7, 20, seed=1)))


class TestSetsThatAPersonWouldReject:
    """Everything is compared with the same real rows; the fresh real set must win clearly."""

    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        real, _ = classes(2_000)
        fresh, which = classes(1_000, seed=1)
        centre = fresh.mean(0)
        means = np.stack([fresh[which == c].mean(0) for c in range(10)])[which]
        noisy = fresh + cloud(1_000, 20, seed=5)
        sets = {
            "fresh": fresh,
            "shrunken": centre + np.float32(0.8) * (fresh - centre),
            "shrunken features": np.float32(0.8) * fresh,
            "noisy": noisy,
            "class means": means,
            "one point": np.repeat(fresh[:1], 1_000, axis=0),
        }
        reference = make_reference(real, Same(), 1_000)
        return {name: reference.compare(x) for name, x in sets.items()}

    BAD = ("shrunken", "shrunken features", "noisy", "class means", "one point")

    @pytest.mark.parametrize("figure", ["kernel distance", "Fréchet distance"])
    @pytest.mark.parametrize("name", BAD)
    def test_a_bad_set_is_far_from_a_fresh_real_one(self, found, figure, name):
        bad, fresh = found[name][figure], found["fresh"][figure]
        assert bad.value > 3 * max(abs(fresh.value), fresh.error)
        assert bad.value - fresh.value > 5 * np.hypot(bad.error, fresh.error)

    def test_worse_sets_are_further_away(self, found):
        order = ["fresh", "shrunken", "class means", "one point"]
        values = [found[name]["Fréchet distance"].value for name in order]
        assert values == sorted(values) and values[3] > 10 * values[1]
        worst = max(found[name]["kernel distance"].value for name in order[:3])
        assert found["one point"]["kernel distance"].value > 10 * worst

    def test_a_fresh_real_set_is_at_no_kernel_distance_within_its_error(self, found):
        fresh = found["fresh"]["kernel distance"]
        assert abs(fresh.value) < 3 * fresh.error

    def test_coverage_falls_with_lost_modes_and_density_with_noise(self, found):
        assert found["one point"]["coverage"].value < 0.05
        assert found["class means"]["coverage"].value < 0.75
        assert found["noisy"]["density"].value < 0.1 * found["fresh"]["density"].value


class TestDensityAndCoverage:
    @staticmethod
    def brute_force(real, samples, k):
        among = np.linalg.norm(real[:, None] - real, axis=2)
        radius = np.sort(among, axis=1)[:, k]
        within = np.linalg.norm(real[:, None] - samples, axis=2) <= radius[:, None]
        return within.sum() / (k * len(samples)), within.any(axis=1).mean()

    def test_a_set_covers_itself(self):
        x = cloud(300, 3)
        assert density_and_coverage(x, x)[1] == 1

    def test_samples_far_away_cover_nothing(self):
        assert density_and_coverage(cloud(300, 3), cloud(200, 3, seed=1) + 100) == (0, 0)

    @pytest.mark.parametrize("k", [1, 5])
    def test_equals_brute_force(self, k):
        real, samples = cloud(120, 3), 0.7 * cloud(90, 3, seed=1)
        found = density_and_coverage(real, samples, k)
        assert found == pytest.approx(self.brute_force(real, samples, k))

    def test_new_rows_of_the_same_law_have_density_one_and_the_known_coverage(self):
        """E[coverage] = 1 - (n-1)…(n-k)/((2n-1)…(2n-k)) for n = m, which is about 1 - 2⁻ᵏ."""
        n, k = 2_000, 5
        density, coverage = density_and_coverage(cloud(n, 3), cloud(n, 3, seed=1))
        missed = np.prod([(n - i) / (2 * n - i) for i in range(1, k + 1)])
        assert density == pytest.approx(1, abs=0.05)
        assert coverage == pytest.approx(1 - missed, abs=0.015)

    def test_one_sample_repeated_is_dense_but_covers_little(self):
        real = cloud(500, 3)
        middle = np.repeat(real[np.linalg.norm(real, axis=1).argmin()][None], 500, axis=0)
        density, coverage = density_and_coverage(real, middle)
        assert density > 0.5 and coverage < 0.05

    def test_few_real_rows_and_many_samples_do_not_cover_everything(self):
        """98 rows and 10,000 samples: each ball would hold one, whatever the samples are like."""
        real, _ = classes(98)
        fresh, which = classes(10_000, seed=1)
        reference = make_reference(real, Same(), 5_000)
        assert reference.size == 49
        narrow = fresh[which < 5]
        assert density_and_coverage(real, 1.5 * fresh)[1] > 0.97
        good, bad, wide = (reference.compare(x)["coverage"] for x in (fresh, narrow, 1.5 * fresh))
        assert 0.9 < good.value < 0.99
        assert bad.value < good.value - 0.15 and wide.value < good.value - 0.15

    def test_real_rows_against_real_rows_are_like_any_fresh_set(self):
        reference = make_reference(classes(2_000)[0], Same(), 5_000)
        itself, fresh = reference.compare_itself(), reference.compare(classes(3_000, seed=1)[0])
        for name, estimate in itself.items():
            error = np.hypot(estimate.error, fresh[name].error)
            assert abs(estimate.value - fresh[name].value) < 4 * error, name

    def test_too_few_real_rows_have_no_figures(self):
        assert make_reference(cloud(7), Same(), 5_000) is None
        assert make_reference(cloud(8), Same(), 5_000).size == 4


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
        a = cloud(500, 1).astype(np.float64)
        assert sliced_wasserstein(a, a + shift) == pytest.approx(abs(shift), rel=1e-12)

    def test_is_the_mean_absolute_difference_of_sorted_points_in_one_dimension(self):
        a, b = cloud(101, 1).astype(float), 3 * cloud(101, 1, seed=1).astype(float)
        expected = np.abs(np.sort(a[:, 0]) - np.sort(b[:, 0])).mean()
        assert sliced_wasserstein(a, b) == pytest.approx(expected, rel=1e-12)

    def test_a_point_counts_by_its_share_of_the_set(self):
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
