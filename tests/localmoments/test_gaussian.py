"""Conditional sampling on Gaussian data, where every answer is known in closed form."""

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import multivariate_normal

from localmoments.arrays import Doubles
from localmoments.gaussian import Gaussian, Measurement, bridge, draw_given, gain

EXACT = np.zeros(())


def covariance(rng: np.random.Generator, d: int) -> Doubles:
    """Eigenvalues over two decades."""
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (Q * np.geomspace(0.03, 3.0, d)) @ Q.T


def denoised(C: Doubles, m: Doubles, y: Doubles, t: float) -> Gaussian:
    """X given X + tε = y, for X ~ N(m, C): r(y) and t²A, A = C (C + t²)⁻¹."""
    A = np.linalg.solve(C + t**2 * np.eye(len(C)), C)
    return Gaussian(m + (y - m) @ A, np.broadcast_to(t**2 * A, (*y.shape, len(C))))


def known(rng: np.random.Generator, d: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A random mask with something known and something not."""
    return rng.permutation(np.arange(d) < rng.integers(1, d))


@pytest.mark.parametrize("d", [2, 3, 8, 20, 64])
@pytest.mark.parametrize("t", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("error", [0.0, 0.3])
def test_a_gibbs_step_given_known_columns_keeps_the_conditional_law(
    d: int, t: float, error: float
) -> None:
    """x → x + tε → X | known is linear with Gaussian noise, so its stationary mean and covariance
    solve a linear and a Lyapunov equation. They are those of N(m, C) given the measurement."""
    rng = np.random.default_rng(d)
    C, m, mask = covariance(rng, d), rng.standard_normal(d), known(rng, d)
    seen = Measurement.of_columns(mask, rng.standard_normal(d), np.full(d, error))
    drawn = denoised(C, m, np.vstack([np.zeros(d), np.eye(d)]), t).given(seen)
    b, F = drawn.mean[0], (drawn.mean[1:] - drawn.mean[0]).T
    Q = drawn.covariance[0] + t**2 * F @ F.T
    truth = Gaussian(m, C).given(seen)
    np.testing.assert_allclose(np.linalg.solve(np.eye(d) - F, b), truth.mean, atol=1e-8)
    np.testing.assert_allclose(solve_discrete_lyapunov(F, Q), truth.covariance, atol=1e-8)


def test_the_closed_form_is_that_of_the_regression_on_known_columns() -> None:
    rng = np.random.default_rng(1)
    C, mask = covariance(rng, 6), np.array([1, 0, 0, 1, 1, 0], bool)
    y = rng.standard_normal(6)
    got = Gaussian(np.zeros(6), C).given(Measurement.of_columns(mask, y, EXACT))
    B = C[~mask][:, mask] @ np.linalg.inv(C[mask][:, mask])
    np.testing.assert_allclose(got.mean[~mask], B @ y[mask], atol=1e-12)
    np.testing.assert_allclose(got.mean[mask], y[mask], atol=1e-12)
    left = C[~mask][:, ~mask] - B @ C[mask][:, ~mask]
    np.testing.assert_allclose(got.covariance[~mask][:, ~mask], left, atol=1e-12)
    np.testing.assert_allclose(got.covariance[mask], 0.0, atol=1e-12)


def test_a_column_known_up_to_an_error_moves_part_of_the_way() -> None:
    """Precision adds: 1/C + 1/s²."""
    one = np.ones((1, 1))
    got = Gaussian(np.zeros(1), 4.0 * one).given(Measurement(one, np.ones(1), np.full(1, 0.5)))
    np.testing.assert_allclose([got.mean[0], got.covariance[0, 0]], [4 / 4.5, 1 / (1 / 4 + 2)])


def test_measurements_of_sums_condition_as_known_columns_of_a_turned_space() -> None:
    rng = np.random.default_rng(2)
    C, m, y = covariance(rng, 5), rng.standard_normal(5), rng.standard_normal(2)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    got = Gaussian(m, C).given(Measurement(Q[:2], y, np.array([0.0, 0.2])))
    turned = Measurement(np.eye(5)[:2], y, np.array([0.0, 0.2]))
    same = Gaussian(Q @ m, Q @ C @ Q.T).given(turned)
    np.testing.assert_allclose(got.mean, Q.T @ same.mean, atol=1e-12)
    np.testing.assert_allclose(got.covariance, Q.T @ same.covariance @ Q, atol=1e-12)


def test_every_row_has_its_own_mask_and_does_not_see_the_others() -> None:
    rng = np.random.default_rng(3)
    C = np.stack([covariance(rng, 7) for _ in range(9)])
    r, y = rng.standard_normal((2, 9, 7))
    mask = np.stack([known(rng, 7) for _ in range(9)])
    many = Gaussian(r, C).given(Measurement.of_columns(mask, y, EXACT))
    for i in range(9):
        one = Gaussian(r[i : i + 1], C[i : i + 1]).given(
            Measurement.of_columns(mask[i : i + 1], y[i : i + 1], EXACT)
        )
        assert np.array_equal(one.mean[0], many.mean[i])
        assert np.array_equal(one.covariance[0], many.covariance[i])


def test_a_singular_covariance_is_no_obstacle() -> None:
    """On a line through the plane one known column fixes the other; two that contradict each other
    are met halfway, in units of their spread; on a point, nothing moves."""
    line = np.outer([1.0, 2.0], [1.0, 2.0])
    seen = Measurement.of_columns(np.array([True, False]), np.array([3.0, 0.0]), EXACT)
    got = Gaussian(np.zeros(2), line).given(seen)
    np.testing.assert_allclose(got.mean, [3.0, 6.0])
    np.testing.assert_allclose(got.covariance, 0.0, atol=1e-12)
    both = Measurement.of_columns(np.array([True, True]), np.array([3.0, 5.0]), EXACT)
    np.testing.assert_allclose(Gaussian(np.zeros(2), line).given(both).mean, [2.75, 5.5])
    still = Gaussian(np.ones(2), np.zeros((2, 2))).given(seen)
    np.testing.assert_allclose(still.mean, 1.0)


def test_evidence_and_density_are_those_of_scipy() -> None:
    rng = np.random.default_rng(4)
    C, m, y = covariance(rng, 4), rng.standard_normal(4), rng.standard_normal(4)
    mask = np.array([True, False, True, False])
    seen = Measurement.of_columns(mask, y, np.full(4, 0.4))
    K = C[mask][:, mask] + 0.16 * np.eye(2)
    wanted = multivariate_normal(m[mask], K).logpdf(y[mask])
    np.testing.assert_allclose(Gaussian(m, C).log_evidence(seen), wanted)
    np.testing.assert_allclose(Gaussian(m, C).log_density(y), multivariate_normal(m, C).logpdf(y))


def test_draws_have_the_mean_and_the_covariance() -> None:
    rng = np.random.default_rng(5)
    C = covariance(rng, 3)
    x = Gaussian(np.ones(3), C).draw(rng.standard_normal((40_000, 3)))
    np.testing.assert_allclose(x.mean(0), 1.0, atol=0.03)
    np.testing.assert_allclose(np.cov(x.T), C, atol=0.06)


def test_a_bridge_leads_from_one_noise_level_to_a_lower_one() -> None:
    """For X ~ N(0, C): drawing at t and bridging to s gives X + sε, whatever y was."""
    rng = np.random.default_rng(6)
    C, t, s = covariance(rng, 3), 0.9, 0.4
    at = bridge(denoised(C, np.zeros(3), np.vstack([np.zeros(3), np.eye(3)]), t), np.vstack(
        [np.zeros(3), np.eye(3)]), t, s)  # fmt: skip
    F = (at.mean[1:] - at.mean[0]).T
    total = F @ (C + t**2 * np.eye(3)) @ F.T + at.covariance[0]
    np.testing.assert_allclose(total, C + s**2 * np.eye(3), atol=1e-12)


def test_evidence_telescopes_on_gaussian_data() -> None:
    """log p(z) - log p(z | known) = log p(known) - log p(known | z): the weight of a path down the
    noise levels is the same for every path, so none is ever refused."""
    rng = np.random.default_rng(7)
    C, m, t, s = covariance(rng, 4), rng.standard_normal(4), 0.9, 0.4
    seen = Measurement.of_columns(np.array([1, 1, 0, 0], bool), rng.standard_normal(4), EXACT)
    y = rng.standard_normal((1, 4))
    first = denoised(C, m, y, t)
    weights = []
    for _ in range(3):
        down = bridge(first.given(seen), y, t, s)
        z = down.draw(rng.standard_normal((1, 4)))
        weight = bridge(first, y, t, s).log_density(z) - down.log_density(z)
        weights.append(weight + denoised(C, m, z, s).log_evidence(seen))
    wanted = [first.log_evidence(seen)] * 3
    np.testing.assert_allclose(weights, wanted, atol=1e-9)


def test_the_positive_part_keeps_what_is_positive() -> None:
    rng = np.random.default_rng(8)
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    A = (Q * np.array([-0.2, 0.1, 0.9])) @ Q.T
    wanted = (Q * np.array([0.0, 0.1, 0.9])) @ Q.T
    local = Gaussian.of_products(np.ones(3), A, 0.5)
    np.testing.assert_allclose(local.covariance, 0.25 * wanted, atol=1e-12)
    ε = rng.standard_normal((5, 3))
    same = Gaussian(np.ones(3), 0.25 * wanted).draw(ε)
    np.testing.assert_allclose(local.draw(ε), same, atol=1e-6)


def test_a_further_error_is_added_where_something_is_measured() -> None:
    columns = Measurement.of_columns(np.array([True, False]), np.ones(2), EXACT)
    seen = columns.with_error(np.array(0.25))
    np.testing.assert_allclose(seen.variance, [0.25, 0.0])
    np.testing.assert_allclose(gain(np.eye(2), seen), [[0.8, 0.0], [0.0, 0.0]])


def test_no_set_of_columns_is_narrower_than_the_least_variance() -> None:
    """Cauchy's interlacing; the bound is reached when all columns are in the set."""
    rng = np.random.default_rng(10)
    C = covariance(rng, 6)
    least = Gaussian(np.zeros(6), C).least_variance
    np.testing.assert_allclose(least, np.linalg.eigvalsh(C)[0], rtol=1e-9)
    for _ in range(20):
        mask = known(rng, 6)
        assert np.linalg.eigvalsh(C[mask][:, mask])[0] >= least


def test_matherons_rule_draws_from_the_same_law_as_the_conditional_gaussian() -> None:
    rng = np.random.default_rng(9)
    C, m, y = covariance(rng, 4), rng.standard_normal(4), rng.standard_normal(4)
    seen = Measurement.of_columns(np.array([1, 0, 1, 0], bool), y, np.array([0.3, 0, 0, 0]))
    given = Gaussian(m, C).given(seen)
    x, mean = draw_given(Gaussian(m, C), seen, *rng.standard_normal((2, 40_000, 4)))
    np.testing.assert_allclose(mean[0], given.mean, atol=1e-12)
    np.testing.assert_allclose(x.mean(0), given.mean, atol=0.03)
    np.testing.assert_allclose(np.cov(x.T), given.covariance, atol=0.05)
