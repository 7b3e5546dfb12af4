"""Local moments in closed form: Gaussian data with the optimal r(x) = m + A (x - m)."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.moments import (
    LARGEST,
    Estimator,
    Spectrum,
    full_spectrum,
    in_user_units,
    leading_spectrum,
    local_moments,
)
from service.core.normaliser import Normaliser

Matrix = NDArray[np.float64]
ALPHA = 0.3


@dataclass
class Counted:
    """Products with a matrix, counted."""

    A: Matrix
    vectors: int = 0

    def __call__(self, v: Matrix) -> Matrix:
        self.vectors += len(v)
        return v @ self.A


def symmetric(values: Matrix, seed: int = 0) -> Matrix:
    """A random matrix with these eigenvalues."""
    n = len(values)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return (Q * values) @ Q.T


@pytest.fixture
def m() -> Matrix:
    return np.array([1.0, -2.0, 0.5, 3.0])


@pytest.fixture
def C() -> Matrix:
    return symmetric(np.array([4.0, 1.0, 0.3, 0.01]))


@pytest.fixture
def A(C: Matrix) -> Matrix:
    return C @ np.linalg.inv(C + ALPHA * np.eye(4))


@pytest.fixture
def x() -> Matrix:
    return np.array([0.3, 0.1, -1.0, 2.0])


def test_inverted_moments_give_back_the_gaussian(
    m: Matrix, C: Matrix, A: Matrix, x: Matrix
) -> None:
    r = m + A @ (x - m)
    moments = local_moments(x, r, full_spectrum(A), ALPHA, "inverted")
    np.testing.assert_allclose(moments.mean, m, atol=1e-10)
    np.testing.assert_allclose(moments.covariance(), C, atol=1e-10)


def test_asymptotic_moments_are_the_posteriors(m: Matrix, C: Matrix, A: Matrix, x: Matrix) -> None:
    """E[X | X + √α ε = x] and C - C (C + α)⁻¹ C = α A."""
    r = m + A @ (x - m)
    moments = local_moments(x, r, full_spectrum(A), ALPHA, "asymptotic")
    posterior = C - C @ np.linalg.inv(C + ALPHA * np.eye(4)) @ C
    np.testing.assert_allclose(moments.mean, r)
    np.testing.assert_allclose(moments.covariance(), posterior, atol=1e-12)


@pytest.mark.parametrize("estimator", ["asymptotic", "inverted"])
def test_the_score_is_the_smoothed_densitys(
    m: Matrix, C: Matrix, A: Matrix, x: Matrix, estimator: Estimator
) -> None:
    """∇ log N(x; m, C + α I)"""
    r = m + A @ (x - m)
    got = local_moments(x, r, full_spectrum(A), ALPHA, estimator).score
    np.testing.assert_allclose(got, -np.linalg.solve(C + ALPHA * np.eye(4), x - m))


def test_the_inverted_mean_is_the_papers(x: Matrix) -> None:
    """(I - J)⁻¹ (r - J x), for any r where J is symmetric."""
    J, r = symmetric(np.array([0.9, 0.5, 0.2, 0.0]), 5), np.array([1.0, 0.0, 2.0, -1.0])
    got = local_moments(x, r, full_spectrum(J), ALPHA, "inverted")
    inverse = np.linalg.inv(np.eye(4) - J)
    np.testing.assert_allclose(got.mean, inverse @ (r - J @ x), atol=1e-12)
    np.testing.assert_allclose(got.covariance(), ALPHA * inverse @ J, atol=1e-12)


def test_a_few_eigenpairs_take_a_for_zero_outside_their_span(x: Matrix) -> None:
    J, r = symmetric(np.array([0.9, 0.5, 0.0, 0.0]), 5), np.array([1.0, 0.0, 2.0, -1.0])
    whole = full_spectrum(J)
    two = Spectrum(whole.eigenvalues[:2], whole.vectors[:2])
    for estimator in ("asymptotic", "inverted"):
        few = local_moments(x, r, two, ALPHA, estimator)
        all_of_them = local_moments(x, r, whole, ALPHA, estimator)
        np.testing.assert_allclose(few.mean, all_of_them.mean, atol=1e-12)
        np.testing.assert_allclose(few.covariance(), all_of_them.covariance(), atol=1e-12)
        assert few.tangents.shape == (2, 4)


def test_no_eigenvalue_is_negative_and_the_inverse_sees_none_of_one_or_more(x: Matrix) -> None:
    J = symmetric(np.array([1.7, 0.4, 0.0, -0.8]))
    for spectrum in (full_spectrum(J), leading_spectrum(Counted(J), 4, 4)):
        np.testing.assert_allclose(spectrum.eigenvalues, [1.7, 0.4, 0, 0], atol=1e-9)
        assert spectrum.eigenvalues.min() >= 0
        asymptotic = local_moments(x, 2 * x, spectrum, ALPHA, "asymptotic")
        np.testing.assert_allclose(asymptotic.eigenvalues, ALPHA * spectrum.eigenvalues)
        inverted = local_moments(x, 2 * x, spectrum, ALPHA, "inverted")
        np.testing.assert_allclose(inverted.eigenvalues[0], ALPHA * LARGEST / (1 - LARGEST))
        assert np.isfinite(inverted.mean).all()


def test_only_the_symmetric_part_of_j_counts() -> None:
    J = np.random.default_rng(0).standard_normal((5, 5)) / 10
    one, other = full_spectrum(J), full_spectrum((J + J.T) / 2)
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues)
    np.testing.assert_allclose(one.vectors @ one.vectors.T, np.eye(5), atol=1e-12)
    assert (np.diff(one.eigenvalues) <= 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_leading_spectrum_equals_eighs_leading_pairs(seed: int) -> None:
    d, rank = 200, 6
    A = symmetric(0.95 * 0.8 ** np.arange(d), seed)
    got = leading_spectrum(Counted(A), d, rank)
    values, vectors = np.linalg.eigh(A)
    np.testing.assert_allclose(got.eigenvalues, values[::-1][:rank], rtol=1e-5)
    overlap = np.linalg.svd(got.vectors @ vectors[:, ::-1][:, :rank], compute_uv=False)
    assert overlap.min() > 1 - 1e-6
    np.testing.assert_allclose(got.vectors @ got.vectors.T, np.eye(rank), atol=1e-10)


def test_leading_spectrum_asks_for_no_more_products_than_its_blocks_hold() -> None:
    products = Counted(symmetric(0.95 * 0.9 ** np.arange(100)))
    leading_spectrum(products, 100, 5, blocks=3, extra=4)
    assert products.vectors == 3 * (5 + 4)
    small = Counted(symmetric(np.linspace(0.9, 0, 7)))
    leading_spectrum(small, 7, 5)
    assert small.vectors == 7  # there are no more dimensions than that


def test_leading_spectrum_is_repeatable() -> None:
    A = symmetric(0.95 * 0.9 ** np.arange(60))
    one, same = (leading_spectrum(Counted(A), 60, 3) for _ in range(2))
    assert np.array_equal(one.vectors, same.vectors)


@pytest.mark.parametrize("rank", [4, 5, 50])
def test_a_rank_of_all_dimensions_or_more_gives_every_pair(A: Matrix, rank: int) -> None:
    got = leading_spectrum(Counted(A), 4, rank)
    expected = full_spectrum(A)
    assert got.vectors.shape == (4, 4)
    np.testing.assert_allclose(got.eigenvalues, expected.eigenvalues, atol=1e-12)
    rebuilt = (got.vectors.T * got.eigenvalues) @ got.vectors
    np.testing.assert_allclose(rebuilt, A, atol=1e-10)


@pytest.mark.parametrize("values", [[0.0] * 40, [0.5] * 40, [0.9, 0.4] + [0.0] * 38])
def test_leading_spectrum_survives_a_space_that_runs_out(values: list[float]) -> None:
    """A Q may bring nothing new: A = 0, A ∝ I, or a rank below the block's width."""
    got = leading_spectrum(Counted(symmetric(np.array(values))), 40, 3)
    np.testing.assert_allclose(got.eigenvalues, sorted(values)[::-1][:3], atol=1e-12)
    np.testing.assert_allclose(got.vectors @ got.vectors.T, np.eye(3), atol=1e-10)


def test_leading_spectrum_bears_products_in_single_precision() -> None:
    A = symmetric(0.95 * 0.7 ** np.arange(50)).astype(np.float32)
    got = leading_spectrum(lambda v: (v.astype(np.float32) @ A).astype(np.float64), 50, 4)
    np.testing.assert_allclose(got.eigenvalues, 0.95 * 0.7 ** np.arange(4), rtol=1e-5)
    np.testing.assert_allclose(got.vectors @ got.vectors.T, np.eye(4), atol=1e-9)


@pytest.mark.parametrize("k", [4, 2])
def test_moments_in_the_users_units_are_those_of_d_c_d(A: Matrix, x: Matrix, k: int) -> None:
    whole = full_spectrum(A)
    spectrum = Spectrum(whole.eigenvalues[:k], whole.vectors[:k])
    units = Normaliser(np.array([5.0, 0.0, -1.0, 2.0]), np.array([0.1, 2.0, 30.0, 1.0]))
    moments = local_moments(x, 2 * x, spectrum, ALPHA, "asymptotic")
    got = in_user_units(moments, units)
    D = np.diag(units.scale)
    expected = D @ moments.covariance() @ D
    values, vectors = np.linalg.eigh(expected)
    np.testing.assert_allclose(got.covariance(), expected, atol=1e-9)
    np.testing.assert_allclose(got.eigenvalues, values[::-1][:k], rtol=1e-7)
    np.testing.assert_allclose(np.abs(got.tangents @ vectors[:, ::-1][:, :k]), np.eye(k), atol=1e-6)
    np.testing.assert_allclose(got.mean, units.to_user(moments.mean))
    np.testing.assert_allclose(got.score, moments.score / units.scale)
