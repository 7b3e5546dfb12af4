"""Local moments in closed form: Gaussian data with the optimal r(x) = m + A (x - m)."""

import numpy as np
import pytest
from numpy.typing import NDArray

from localmoments.columns import Normaliser
from localmoments.estimators import (
    FEWEST_POINTS,
    LARGEST,
    SLACK,
    Estimator,
    Spread,
    convert_to_data_units,
    estimate_moments,
    estimate_scaled_moments,
)
from localmoments.spectrum import Spectrum, full_spectrum, leading_spectrum

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
    moments = estimate_moments(x, r, full_spectrum(A), ALPHA, "inverted")
    np.testing.assert_allclose(moments.mean, m, atol=1e-10)
    np.testing.assert_allclose(moments.covariance(), C, atol=1e-10)


def test_asymptotic_moments_are_the_posteriors(m: Matrix, C: Matrix, A: Matrix, x: Matrix) -> None:
    """E[X | X + √α ε = x] and C - C (C + α)⁻¹ C = α A."""
    r = m + A @ (x - m)
    moments = estimate_moments(x, r, full_spectrum(A), ALPHA, "asymptotic")
    posterior = C - C @ np.linalg.inv(C + ALPHA * np.eye(4)) @ C
    np.testing.assert_allclose(moments.mean, r)
    np.testing.assert_allclose(moments.covariance(), posterior, atol=1e-12)


@pytest.mark.parametrize("estimator", ["asymptotic", "inverted"])
def test_the_score_is_the_smoothed_densitys(
    m: Matrix, C: Matrix, A: Matrix, x: Matrix, estimator: Estimator
) -> None:
    """∇ log N(x; m, C + α I)"""
    r = m + A @ (x - m)
    got = estimate_moments(x, r, full_spectrum(A), ALPHA, estimator).score
    np.testing.assert_allclose(got, -np.linalg.solve(C + ALPHA * np.eye(4), x - m))


def test_the_inverted_mean_is_the_papers(x: Matrix) -> None:
    """(I - J)⁻¹ (r - J x), for any r where J is symmetric."""
    J, r = symmetric(np.array([0.9, 0.5, 0.2, 0.0]), 5), np.array([1.0, 0.0, 2.0, -1.0])
    got = estimate_moments(x, r, full_spectrum(J), ALPHA, "inverted")
    inverse = np.linalg.inv(np.eye(4) - J)
    np.testing.assert_allclose(got.mean, inverse @ (r - J @ x), atol=1e-12)
    np.testing.assert_allclose(got.covariance(), ALPHA * inverse @ J, atol=1e-12)


def test_a_few_eigenpairs_take_a_for_zero_outside_their_span(x: Matrix) -> None:
    J, r = symmetric(np.array([0.9, 0.5, 0.0, 0.0]), 5), np.array([1.0, 0.0, 2.0, -1.0])
    whole = full_spectrum(J)
    two = Spectrum(whole.eigenvalues[:2], whole.vectors[:2])
    for estimator in ("asymptotic", "inverted"):
        few = estimate_moments(x, r, two, ALPHA, estimator)
        all_of_them = estimate_moments(x, r, whole, ALPHA, estimator)
        np.testing.assert_allclose(few.mean, all_of_them.mean, atol=1e-12)
        np.testing.assert_allclose(few.covariance(), all_of_them.covariance(), atol=1e-12)
        assert few.tangents.shape == (2, 4)


def test_no_variance_is_negative_and_none_of_the_posteriors_is_clipped_above(x: Matrix) -> None:
    J = symmetric(np.array([1.7, 0.4, 0.0, -0.8]))
    for spectrum in (full_spectrum(J), leading_spectrum(lambda v: v @ J, 4, 4)):
        np.testing.assert_allclose(spectrum.eigenvalues, [1.7, 0.4, 0, -0.8], atol=1e-9)
        got = estimate_moments(x, 2 * x, spectrum, ALPHA, "asymptotic")
        np.testing.assert_allclose(got.eigenvalues, ALPHA * np.array([1.7, 0.4, 0, 0]), atol=1e-9)
        assert got.eigenvalues.min() >= 0 and got.shrunk == 0


def test_without_points_the_inverse_is_asymptotic_where_an_eigenvalue_reaches_one(
    x: Matrix,
) -> None:
    spectrum = full_spectrum(np.diag([1.7, 0.5, LARGEST, -0.8]))
    r = x + np.array([1.0, 2.0, 3.0, 4.0])
    got = estimate_moments(x, r, spectrum, ALPHA, "inverted")
    assert got.shrunk == 2
    np.testing.assert_allclose(got.eigenvalues, ALPHA * np.array([1.7, 1.0, LARGEST, 0]))
    np.testing.assert_allclose(got.mean - r, [1.7, 2.0, 3 * LARGEST, 0])


def test_with_the_datas_points_the_inverse_still_gives_back_the_gaussian(
    m: Matrix, C: Matrix, A: Matrix, x: Matrix
) -> None:
    points = np.random.default_rng(0).multivariate_normal(m, C, FEWEST_POINTS)
    got = estimate_moments(x, m + A @ (x - m), full_spectrum(A), ALPHA, "inverted", Spread(points))
    assert got.shrunk == 0
    np.testing.assert_allclose(got.mean, m, atol=1e-10)
    np.testing.assert_allclose(got.covariance(), C, atol=1e-10)


@pytest.mark.parametrize("top", [0.999, LARGEST, 1.0, 1.7])
def test_the_inverse_is_bounded_by_the_datas_variance_and_range(x: Matrix, top: float) -> None:
    """Along a tangent λ is close to 1 by construction, and 1 - λ is no measurement."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((200, 4)) * [1.0, 0.5, 0.1, 0.1]
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    spectrum = full_spectrum((Q * [top, 0.5, 0.1, 0.0]) @ Q.T)
    got = estimate_moments(x, x + 1.0, spectrum, ALPHA, "inverted", Spread(points))
    free = estimate_moments(x, x + 1.0, spectrum, ALPHA, "inverted")
    data = points @ got.tangents[0]
    assert got.shrunk >= 1
    assert got.eigenvalues[0] <= max(SLACK * data.var(), ALPHA * top) * (1 + 1e-9)
    low, high = np.minimum(points.min(0), x + 1), np.maximum(points.max(0), x + 1)
    assert (low <= got.mean).all() and (got.mean <= high).all()
    if top < LARGEST:
        assert np.abs(free.mean).max() > 10 * max(high.max(), -low.min())  # what is bounded


def test_the_bounded_mean_stays_in_the_range_of_every_column() -> None:
    """At the end of both diagonals of a square a point lies outside of it."""
    points = np.random.default_rng(2).uniform(0, 1, (200, 2))
    spectrum = full_spectrum(np.array([[0.99999, 1e-6], [1e-6, 0.99999]]))  # along the diagonals
    x, r = np.array([0.5, 0.5]), np.array([0.7, 0.5])
    got = estimate_moments(x, r, spectrum, 1e-3, "inverted", Spread(points))
    assert got.shrunk == 2
    np.testing.assert_allclose(got.mean[0], points[:, 0].max())


def test_few_points_bound_nothing(m: Matrix, C: Matrix, A: Matrix, x: Matrix) -> None:
    spread = Spread(np.zeros((FEWEST_POINTS - 1, 4)))
    got = estimate_moments(x, m + A @ (x - m), full_spectrum(A), ALPHA, "inverted", spread)
    np.testing.assert_allclose(got.covariance(), C, atol=1e-10)


UNITS = Normaliser(np.array([5.0, 0.0, -1.0, 2.0]), np.array([0.1, 2.0, 30.0, 1.0]))


@pytest.mark.parametrize("estimator", ["asymptotic", "inverted"])
def test_moments_in_the_users_units_are_those_of_d_c_d(
    A: Matrix, x: Matrix, estimator: Estimator
) -> None:
    moments = estimate_moments(x, 2 * x, full_spectrum(A), ALPHA, estimator)
    got = convert_to_data_units(moments, UNITS)
    D = np.diag(UNITS.scale)
    expected = D @ moments.covariance() @ D
    values, vectors = np.linalg.eigh(expected)
    np.testing.assert_allclose(got.covariance(), expected, atol=1e-9)
    np.testing.assert_allclose(got.eigenvalues, values[::-1], rtol=1e-7)
    np.testing.assert_allclose(np.abs(got.tangents @ vectors[:, ::-1]), np.eye(4), atol=1e-6)
    np.testing.assert_allclose(got.mean, UNITS.to_user(moments.mean))
    np.testing.assert_allclose(got.score, moments.score / UNITS.scale)


def test_pairs_of_d_a_d_give_the_same_moments(A: Matrix, x: Matrix) -> None:
    expected = convert_to_data_units(
        estimate_moments(x, 2 * x, full_spectrum(A), ALPHA, "asymptotic"), UNITS
    )
    got = estimate_scaled_moments(x, 2 * x, full_spectrum(A, UNITS.scale), ALPHA, UNITS)
    for name in ("mean", "eigenvalues", "tangents", "score"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=1e-9)


def test_a_few_pairs_of_a_are_not_rescaled_to_columns_of_different_scales(
    A: Matrix, x: Matrix
) -> None:
    """They do not determine the pairs of D C D; where D is a number they do."""
    moments = estimate_moments(x, 2 * x, full_spectrum(A).truncate(2), ALPHA, "asymptotic")
    with pytest.raises(ValueError, match="2 of 4 eigenpairs"):
        convert_to_data_units(moments, UNITS)
    got = convert_to_data_units(moments, Normaliser(np.zeros(4), np.full(4, 255.0)))
    np.testing.assert_allclose(got.eigenvalues, moments.eigenvalues * 255.0**2)
    np.testing.assert_array_equal(got.tangents, moments.tangents)


@pytest.mark.parametrize("d", [500, 1000])
def test_leading_pairs_in_data_units_are_those_of_dense_d_c_d(d: int) -> None:
    """Column scales over two decades, products in single precision as the graphs give them."""
    rng = np.random.default_rng(d)
    a = np.concatenate([np.linspace(0.97, 0.5, 20), 0.4 * 0.99 ** np.arange(d - 20)])
    A = symmetric(a, d).astype(np.float32)
    units = Normaliser(rng.standard_normal(d), 10 ** rng.uniform(-1, 1, d))
    z, r = rng.standard_normal(d), rng.standard_normal(d)

    def products(v: Matrix) -> Matrix:
        return (v.astype(np.float32) @ A).astype(np.float64)

    spectrum = leading_spectrum(products, d, 8, None, units.scale)
    assert len(spectrum.eigenvalues) < d / 2
    got = estimate_scaled_moments(z, r, spectrum, ALPHA, units)
    values, vectors = np.linalg.eigh(units.covariance_to_user(ALPHA * A))
    np.testing.assert_allclose(got.eigenvalues[:8], values[::-1][:8], rtol=1e-3)
    cosines = np.abs(np.sum(got.tangents[:8] * vectors[:, ::-1].T[:8], axis=1))
    assert np.sqrt(1 - np.minimum(cosines, 1) ** 2).max() < 1e-3  # sine of each tangent's angle
