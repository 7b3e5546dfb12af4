"""Local moments in closed form: Gaussian data with the optimal r(x) = m + A (x - m)."""

import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.moments import LARGEST, Estimator, in_user_units, local_moments
from service.core.normaliser import Normaliser
from service.core.spectrum import Spectrum, full_spectrum, leading_spectrum

Matrix = NDArray[np.float64]
ALPHA = 0.3


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
    for spectrum in (full_spectrum(J), leading_spectrum(lambda v: v @ J, 4, 4)):
        np.testing.assert_allclose(spectrum.eigenvalues, [1.7, 0.4, 0, 0], atol=1e-9)
        assert spectrum.eigenvalues.min() >= 0
        asymptotic = local_moments(x, 2 * x, spectrum, ALPHA, "asymptotic")
        np.testing.assert_allclose(asymptotic.eigenvalues, ALPHA * spectrum.eigenvalues)
        inverted = local_moments(x, 2 * x, spectrum, ALPHA, "inverted")
        np.testing.assert_allclose(inverted.eigenvalues[0], ALPHA * LARGEST / (1 - LARGEST))
        assert np.isfinite(inverted.mean).all()


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
