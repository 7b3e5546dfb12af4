"""Leading eigenpairs from products, against matrices and models whose eigenpairs are known."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localmoments.estimators import estimate_moments
from localmoments.graph_calls import Calls, run_calls
from localmoments.model import Model
from localmoments.spectrum import (
    ANGLE,
    MOST,
    WIDTH,
    Krylov,
    Spectrum,
    block_width,
    full_spectrum,
    leading_spectra,
    leading_spectrum,
    whole_spectra,
)

D, ALPHA = 200, 0.25  # of the model r(x) = m + A (x - m)
Matrix = NDArray[np.float64]
FLAT = np.concatenate([np.linspace(1.3, 0.1, 16), np.linspace(0.08, -0.2, 384)])  # a slow tail


@dataclass
class Counted:
    """Products with a matrix, counted."""

    A: Matrix
    calls: list[int] = field(default_factory=list)

    def __call__(self, v: Matrix) -> Matrix:
        self.calls.append(len(v))
        return v @ self.A


def symmetric(values: Matrix, seed: int = 0) -> Matrix:
    """A random matrix with these eigenvalues."""
    n = len(values)
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return (Q * values) @ Q.T


def sine(found: Spectrum, A: Matrix, rank: int) -> float:
    """Of the largest angle between the leading spaces."""
    U = np.linalg.eigh(A)[1][:, ::-1][:, :rank]
    V = found.vectors[:rank]
    return float(np.linalg.norm(U - V.T @ (V @ U), 2))


def test_only_the_symmetric_part_of_j_counts() -> None:
    J = np.random.default_rng(0).standard_normal((5, 5)) / 10
    one, other = full_spectrum(J), full_spectrum((J + J.T) / 2)
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues)
    np.testing.assert_allclose(one.vectors @ one.vectors.T, np.eye(5), atol=1e-12)
    assert (np.diff(one.eigenvalues) <= 0).all()


@pytest.mark.parametrize("values", [0.95 * 0.8 ** np.arange(400), FLAT], ids=["fast", "slow"])
@pytest.mark.parametrize("rank", [1, 6, 16])
def test_the_leading_space_is_eighs_to_a_thousandth(values: Matrix, rank: int) -> None:
    for seed in range(3):
        A = symmetric(values, seed)
        got = leading_spectrum(Counted(A), 400, rank)
        assert sine(got, A, rank) < 1e-3
        np.testing.assert_allclose(got.eigenvalues[:rank], values[:rank], rtol=1e-5)
        k = len(got.vectors)
        np.testing.assert_allclose(got.vectors @ got.vectors.T, np.eye(k), atol=1e-10)


def test_the_estimated_angle_is_near_the_true_one() -> None:
    """At each block from where it is small; that is what ends the growth."""
    A = symmetric(FLAT)
    space, compared = Krylov.start(400, 16), 0
    while not space.is_settled:
        space = space.extend(space.block @ A)
        if space.blocks > 4 and space.angle < 0.05:
            ratio = sine(space.spectrum(), A, 16) / space.angle
            assert 1 / 4 < ratio < 2
            compared += 1
    assert compared >= 2 and space.angle <= ANGLE


def test_eigenvalues_that_are_nearly_equal_take_little_more_than_those_with_a_gap() -> None:
    """Which of them is the last cannot be told; that the pairs are pairs of A can."""
    near = FLAT.copy()
    near[16] = near[15] - 1e-9
    clear, products = Counted(symmetric(FLAT)), Counted(symmetric(near))
    leading_spectrum(clear, 400, 16)
    got = leading_spectrum(products, 400, 16).truncate(16)
    assert len(products.calls) <= len(clear.calls) + 1
    residuals = got.vectors @ products.A - got.eigenvalues[:, None] * got.vectors
    assert (np.linalg.norm(residuals, axis=1) < 1e-3 * got.eigenvalues).all()
    np.testing.assert_allclose(got.eigenvalues, near[:16], rtol=1e-6)


def test_an_eigenvalue_in_more_copies_than_a_block_is_wide_is_found_with_all_of_them() -> None:
    values = np.concatenate([0.9 * np.ones(2 * WIDTH), 0.1 * np.ones(184)])
    got = leading_spectrum(Counted(symmetric(values)), 200, 2 * WIDTH)
    np.testing.assert_allclose(got.eigenvalues[: 2 * WIDTH], 0.9, atol=1e-9)


def test_growth_has_an_end_where_nothing_stands_out() -> None:
    products = Counted(symmetric(np.linspace(0.9, -0.9, 600)))
    got = leading_spectrum(products, 600, 16)
    assert len(products.calls) <= MOST and set(products.calls) == {block_width(600, 16)}
    assert got.eigenvalues.max() <= 0.9 + 1e-9
    small = Counted(symmetric(np.linspace(0.9, 0, 7)))
    leading_spectrum(small, 7, 5)
    assert small.calls == [7]  # there are no more dimensions than that


def test_leading_spectrum_is_repeatable() -> None:
    A = symmetric(0.95 * 0.9 ** np.arange(160))
    one, same = (leading_spectrum(Counted(A), 160, 3) for _ in range(2))
    assert np.array_equal(one.vectors, same.vectors)


@pytest.mark.parametrize("rank", [4, 5, 50])
def test_a_rank_of_all_dimensions_or_more_gives_every_pair(rank: int) -> None:
    A = symmetric(np.array([0.9, 0.7, 0.3, 0.01]))
    got = leading_spectrum(Counted(A), 4, rank)
    expected = full_spectrum(A)
    assert got.vectors.shape == (4, 4)
    np.testing.assert_allclose(got.eigenvalues, expected.eigenvalues, atol=1e-12)
    rebuilt = (got.vectors.T * got.eigenvalues) @ got.vectors
    np.testing.assert_allclose(rebuilt, A, atol=1e-10)


@pytest.mark.parametrize("values", [[0.0] * 40, [0.5] * 40, [0.9, 0.4] + [0.0] * 38])
@pytest.mark.parametrize("rank", [3, 20])
def test_a_space_that_runs_out_is_survived(values: list[float], rank: int) -> None:
    """A Q may bring nothing new: A = 0, A ∝ I, or a rank below the block's width."""
    got = leading_spectrum(Counted(symmetric(np.array(values))), 40, rank).truncate(rank)
    np.testing.assert_allclose(got.eigenvalues, sorted(values)[::-1][:rank], atol=1e-12)
    np.testing.assert_allclose(got.vectors @ got.vectors.T, np.eye(rank), atol=1e-10)


@pytest.mark.parametrize("toward", [np.zeros(200), np.full(200, 1e30), np.eye(200)[3]])
def test_the_space_holds_what_it_is_led_toward(toward: Matrix) -> None:
    A = symmetric(0.95 * 0.8 ** np.arange(200))
    got = leading_spectrum(Counted(A), 200, 4, toward)
    assert sine(got, A, 4) < 1e-3
    inside = got.vectors.T @ (got.vectors @ toward)
    np.testing.assert_allclose(inside, toward, atol=1e-9 * max(1.0, np.abs(toward).max()))


def test_products_in_single_precision_are_borne() -> None:
    A = symmetric(FLAT).astype(np.float32)
    got = leading_spectrum(lambda v: (v.astype(np.float32) @ A).astype(np.float64), 400, 16)
    np.testing.assert_allclose(got.eigenvalues[:16], FLAT[:16], rtol=1e-5)
    assert sine(got, A.astype(np.float64), 16) < 1e-3
    np.testing.assert_allclose(got.vectors[:16] @ got.vectors[:16].T, np.eye(16), atol=1e-9)


@pytest.fixture(scope="module")
def a() -> Any:
    """Eigenvalues of A: a few that stand out, and many small ones that add up."""
    return np.concatenate([np.linspace(0.95, 0.7, 9), np.linspace(0.4, 0.1, D - 9)])


@pytest.fixture(scope="module")
def Q() -> Any:
    return np.linalg.qr(np.random.default_rng(0).standard_normal((D, D)))[0]


@pytest.fixture(scope="module")
def m() -> Any:
    return np.random.default_rng(1).standard_normal(D)


@pytest.fixture(scope="module")
def wide(a: Any, Q: Any, m: Any, make_linear: Callable[..., Model]) -> Model:
    return make_linear(a, Q, m)


@pytest.fixture
def z() -> Any:
    return np.random.default_rng(3).standard_normal((7, D)).astype(np.float32)


def test_the_whole_spectrum_is_that_of_a(wide: Model, z: Any, a: Any, Q: Any, m: Any) -> None:
    r, spectra = run_calls(wide, whole_spectra(z, {}))
    np.testing.assert_allclose(r, m + (z - m) @ (Q * a) @ Q.T, atol=1e-4)
    for spectrum in spectra:
        np.testing.assert_allclose(spectrum.eigenvalues, a, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 4, 9])
def test_leading_pairs_of_all_points_are_those_of_a(
    wide: Model, z: Any, a: Any, Q: Any, rank: int
) -> None:
    spectra = run_calls(wide, leading_spectra(z, {}, rank))
    assert len(spectra) == 7
    for spectrum in spectra:
        top = spectrum.truncate(rank)
        np.testing.assert_allclose(top.eigenvalues, a[:rank], rtol=1e-5)
        U, V = Q[:, :rank], top.vectors
        assert np.linalg.norm(U - V.T @ (V @ U), 2) < 1e-3  # sine of the largest angle


@pytest.mark.parametrize("whole", [True, False])
def test_pairs_in_other_units_are_those_of_d_a_d(
    wide: Model, z: Any, a: Any, Q: Any, whole: bool
) -> None:
    """Column scales over two decades, beyond those that float32 would need help with."""
    scale = 1e-3 * 10 ** np.random.default_rng(5).uniform(-1, 1, D)
    if whole:
        _, spectra = run_calls(wide, whole_spectra(z[:2], {}, scale))
    else:
        spectra = run_calls(wide, leading_spectra(z[:2], {}, 8, None, scale))
    values, vectors = np.linalg.eigh((Q * a) @ Q.T * scale * scale[:, None])
    for spectrum in spectra:
        top = spectrum.truncate(8)
        np.testing.assert_allclose(top.eigenvalues, values[::-1][:8], rtol=1e-4)
        U, V = vectors[:, ::-1][:, :8], top.vectors
        assert np.linalg.norm(U - V.T @ (V @ U), 2) < 1e-3


def test_points_whose_space_is_settled_leave_the_calls(wide: Model, z: Any, m: Any) -> None:
    """The space of the last point differs from the others': it contains no particular vector."""
    z = np.vstack([z, m[None].astype(np.float32)])
    toward = (wide.run("reconstruct", x=z)["mean"] - z).astype(np.float64)
    rows: list[int] = []

    def watch(calls: Calls[Any]) -> Calls[Any]:
        call = next(calls)
        while True:
            rows.append(len(call.inputs["x"]))
            outputs = yield call
            try:
                call = calls.send(outputs)
            except StopIteration as end:
                return end.value

    run_calls(wide, watch(leading_spectra(z, {}, 9, toward)))
    assert rows == sorted(rows, reverse=True) and len(rows) < 24


def test_the_inverted_mean_does_not_need_every_pair(wide: Model, z: Any, m: Any) -> None:
    """(I - A)⁻¹ (r - z) = m - z, to 2 % from half of the dimensions, because r - z is in them."""
    r = wide.run("reconstruct", x=z)["mean"]
    spectra = run_calls(wide, leading_spectra(z, {}, 1, r.astype(np.float64) - z))
    for row, mean, spectrum in zip(z, r, spectra, strict=True):
        assert len(spectrum.eigenvalues) <= D / 2
        got = estimate_moments(row, mean, spectrum, ALPHA, "inverted").mean
        assert np.linalg.norm(got - m) < 0.02 * np.linalg.norm(row - m)


def test_a_point_gets_the_same_bits_alone_or_with_others(wide: Model, z: Any) -> None:
    many = run_calls(wide, leading_spectra(z, {}, 3))
    [alone] = run_calls(wide, leading_spectra(z[4:5], {}, 3))
    assert np.array_equal(alone.eigenvalues, many[4].eigenvalues)
    assert np.array_equal(alone.vectors, many[4].vectors)
