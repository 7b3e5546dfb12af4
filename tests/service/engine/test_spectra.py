"""Eigenpairs at many points, of a model whose A is known: r(x) = m + A (x - m)."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from localmoments.estimators import local_moments
from localmoments.model import Model
from service.engine.executor import Executor
from service.engine.spectra import leading_spectra, whole_spectra

D, ALPHA = 200, 0.25


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


def test_the_whole_spectrum_is_that_of_a(
    executor: Executor, wide: Model, z: Any, a: Any, Q: Any, m: Any
) -> None:
    r, spectra = asyncio.run(whole_spectra(executor, wide, z, None))
    np.testing.assert_allclose(r, m + (z - m) @ (Q * a) @ Q.T, atol=1e-4)
    for spectrum in spectra:
        np.testing.assert_allclose(spectrum.eigenvalues, a, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 4, 9])
def test_leading_pairs_of_all_points_are_those_of_a(
    executor: Executor, wide: Model, z: Any, a: Any, Q: Any, rank: int
) -> None:
    _, spectra = asyncio.run(leading_spectra(executor, wide, z, None, rank))
    assert len(spectra) == 7
    for spectrum in spectra:
        top = spectrum.leading(rank)
        np.testing.assert_allclose(top.eigenvalues, a[:rank], rtol=1e-5)
        U, V = Q[:, :rank], top.vectors
        assert np.linalg.norm(U - V.T @ (V @ U), 2) < 1e-3  # sine of the largest angle


@pytest.mark.parametrize("whole", [True, False])
def test_pairs_in_other_units_are_those_of_d_a_d(
    executor: Executor, wide: Model, z: Any, a: Any, Q: Any, whole: bool
) -> None:
    """Column scales over two decades, beyond those that float32 would need help with."""
    scale = 1e-3 * 10 ** np.random.default_rng(5).uniform(-1, 1, D)
    if whole:
        _, spectra = asyncio.run(whole_spectra(executor, wide, z[:2], None, scale))
    else:
        _, spectra = asyncio.run(leading_spectra(executor, wide, z[:2], None, 8, scale))
    values, vectors = np.linalg.eigh((Q * a) @ Q.T * scale * scale[:, None])
    for spectrum in spectra:
        top = spectrum.leading(8)
        np.testing.assert_allclose(top.eigenvalues, values[::-1][:8], rtol=1e-4)
        U, V = vectors[:, ::-1][:, :8], top.vectors
        assert np.linalg.norm(U - V.T @ (V @ U), 2) < 1e-3


def test_points_whose_space_is_settled_leave_the_calls(
    executor: Executor, wide: Model, z: Any, m: Any
) -> None:
    """At m itself r - z = 0, so that its space is another one than the rest's."""
    rows: list[int] = []

    class Watched(Model):
        def run(self, graph: str, **inputs: Any) -> Any:
            rows.append(len(inputs["x"])) if graph == "moments" else None
            return super().run(graph, **inputs)

    model = Watched(wide.folder, wide.manifest, threads=1)
    asyncio.run(
        leading_spectra(executor, model, np.vstack([z, m[None].astype(np.float32)]), None, 9)
    )
    assert rows == sorted(rows, reverse=True) and len(rows) < 24


def test_the_inverted_mean_does_not_need_every_pair(
    executor: Executor, wide: Model, z: Any, m: Any
) -> None:
    """(I - A)⁻¹ (r - z) = m - z, to 2 % from half of the dimensions, because r - z is in them."""
    r, spectra = asyncio.run(leading_spectra(executor, wide, z, None, 1))
    for row, mean, spectrum in zip(z, r, spectra, strict=True):
        assert len(spectrum.eigenvalues) <= D / 2
        got = local_moments(row, mean, spectrum, ALPHA, "inverted").mean
        assert np.linalg.norm(got - m) < 0.02 * np.linalg.norm(row - m)


def test_a_point_gets_the_same_bits_alone_or_with_others(
    executor: Executor, wide: Model, z: Any
) -> None:
    _, many = asyncio.run(leading_spectra(executor, wide, z, None, 3))
    _, [alone] = asyncio.run(leading_spectra(executor, wide, z[4:5], None, 3))
    assert np.array_equal(alone.eigenvalues, many[4].eigenvalues)
    assert np.array_equal(alone.vectors, many[4].vectors)
