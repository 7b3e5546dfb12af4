"""Roots as matrices: a root applied to identity noise shows the covariance that it draws."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.covariance_roots import (
    EXCESS,
    FLOOR,
    MATRIX_COLUMNS,
    Exact,
    Jacobian,
    Matrix,
    Polynomial,
    Root,
    has_exact_root,
    make_root,
    symmetric_root,
)
from trainer.errors import RecipeError

pytestmark = pytest.mark.usefixtures("double")

Maker = Callable[..., AutoEncoder]
TIED = Architecture(4, (6,), "sigmoid", tied=True)


def matrix(root: Root, ae: AutoEncoder, x: Tensor) -> Tensor:
    """R, where the root at x is ε -> R ε; (d, noise)."""
    rows = x.expand(root.noise, -1)
    return root(ae.linearise(rows), rows, torch.eye(root.noise)).T.detach()


def linear(J: NDArray[np.float64]) -> AutoEncoder:
    """r(x) = J x"""
    ae = AutoEncoder(Architecture(len(J), (len(J),), "linear"))
    ae.load_state_dict(
        ae.state_dict()
        | {"encoder.0.weight": torch.from_numpy(J), "decoder.0.weight": torch.eye(len(J))}
    )
    return ae


@pytest.mark.parametrize("unit", ["sigmoid", "tanh", "softplus", "linear"])
def test_the_exact_root_draws_with_covariance_a(
    unit: str, make_ae: Maker, jacobian_of: Callable[..., Tensor]
) -> None:
    ae, x = make_ae(Architecture(4, (6,), unit, tied=True)), torch.randn(1, 4)
    R = matrix(Exact(ae), ae, x)
    A = jacobian_of(ae, x)[0]
    torch.testing.assert_close(A, A.T)  # J of one tied layer is symmetric
    torch.testing.assert_close(R @ R.T, A)


@pytest.mark.parametrize("d", [1, 2, 8, MATRIX_COLUMNS])
def test_the_matrix_root_draws_with_covariance_a_and_a_floor(d: int) -> None:
    """Eigenvalues above 1 too, which A has between two clusters; of a J that is not symmetric."""
    rng, λ = np.random.default_rng(d), np.geomspace(6, 0.02, d)
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    S = rng.standard_normal((d, d))
    A = (Q * λ) @ Q.T
    ae = linear(A + S - S.T)
    R = matrix(Matrix(ae), ae, torch.zeros(1, d)).numpy()
    np.testing.assert_allclose(R, R.T, atol=1e-8)
    floor = FLOOR * np.linalg.norm(A) * np.eye(d)
    np.testing.assert_allclose(R @ R.T, A + floor, atol=1e-6)


def test_the_matrix_root_gives_negative_eigenvalues_only_the_floor() -> None:
    Q, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))
    λ = np.array([1.5, 0.2, -0.3, -1.0])
    R = symmetric_root(torch.from_numpy((Q * λ) @ Q.T)[None])[0].numpy()
    drawn = np.diag(Q.T @ R @ R @ Q)
    np.testing.assert_allclose(drawn, λ.clip(0) + FLOOR * np.linalg.norm(λ), atol=1e-6)


@pytest.mark.parametrize("d", [2, 8, MATRIX_COLUMNS])
def test_the_matrix_root_is_accurate_in_single_precision_for_any_eigenvalues(d: int) -> None:
    """Singular, indefinite, tiny: rounding errors must not grow from round to round."""
    g = torch.Generator().manual_seed(d)
    Q, _ = torch.linalg.qr(torch.randn(2000, d, d, generator=g))
    λ = torch.randn(2000, d, generator=g) * torch.rand(2000, d, generator=g) ** 8
    λ[:500, 1:] = 0
    λ[500:1000, 1:] *= 1e-6
    λ[1000] = 0
    A = ((Q * λ[:, None]) @ Q.mT).float()
    R = symmetric_root((A + A.mT) / 2).double()
    away = R @ R - (Q * λ.clamp_min(0)[:, None]) @ Q.mT
    size = λ.norm(dim=1).clamp_min(1e-3)
    assert float((away.abs().amax((1, 2)) / size).max()) < 2 * FLOOR


def test_the_matrix_root_is_for_few_columns(make_ae: Maker) -> None:
    few, many = (
        make_ae(Architecture(d, (4,), "silu")) for d in (MATRIX_COLUMNS, MATRIX_COLUMNS + 1)
    )
    assert isinstance(make_root("auto", few), Matrix)
    assert isinstance(make_root("auto", many), Jacobian)
    with pytest.raises(RecipeError, match="at most 16 columns"):
        make_root("matrix", many)


@pytest.mark.parametrize(("degree", "error"), [(3, 0.053), (6, 0.017), (12, 0.005)])
def test_the_square_of_the_polynomial_root_is_a_within_its_error(degree: int, error: float) -> None:
    """p(λ)² ≈ λ over [0, 1], for a J that is not symmetric either."""
    rng, λ = np.random.default_rng(0), np.linspace(0, 1, 41)
    Q, _ = np.linalg.qr(rng.standard_normal((41, 41)))
    S = rng.standard_normal((41, 41))
    A = (Q * λ) @ Q.T
    ae = linear(A + (S - S.T) / 10)
    R = matrix(Polynomial(ae, degree), ae, torch.zeros(1, 41)).numpy()
    np.testing.assert_allclose(R, R.T, atol=1e-10)
    assert np.linalg.norm(R @ R - A, 2) < error
    assert np.abs(np.diag(Q.T @ R @ R @ Q) - λ).max() < error


def test_the_polynomial_root_gives_no_noise_to_the_null_space() -> None:
    """Not a little: an isotropic error would push a chain off the data's manifold."""
    Q, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))
    ae = linear((Q * [0.9, 0.5, 0.1, 0, 0, 0]) @ Q.T)
    R = matrix(Polynomial(ae, 6), ae, torch.zeros(1, 6)).numpy()
    assert np.abs(R @ Q[:, 3:]).max() < 1e-14
    assert np.abs(Q[:, 3:].T @ R).max() < 1e-14


@pytest.mark.parametrize("λ", [[30.0, 0.5, 0.1], [-4.0, 0.5, 0.1]])
def test_the_polynomial_root_shortens_draws_that_are_too_long(λ: list[float]) -> None:
    """‖A^{1/2} ε‖² = εᵀ A ε; outside [0, UPPER] the polynomial alone is off by powers of ten."""
    ae = linear(np.diag(λ))
    root, ε = Polynomial(ae, 8), torch.randn(200, 3)
    x = torch.zeros(200, 3)
    lengths = root(ae.linearise(x), x, ε).square().sum(1)
    known = (ε * ε * torch.tensor(λ)).sum(1).clamp_min(0)
    assert bool((lengths <= EXCESS**2 * known + 1e-9).all()) and float(known.max()) > 0


def test_the_jacobian_root_is_j(make_ae: Maker, jacobian_of: Callable[..., Tensor]) -> None:
    ae, x = make_ae(Architecture(4, (6, 3), "silu")), torch.randn(1, 4)
    torch.testing.assert_close(matrix(Jacobian(ae), ae, x), jacobian_of(ae, x)[0])


def test_the_gain_multiplies_only_the_jacobian_root(
    make_ae: Maker, jacobian_of: Callable[..., Tensor]
) -> None:
    wide = make_ae(Architecture(MATRIX_COLUMNS + 1, (6, 3), "silu"))
    tied, x, y = make_ae(TIED), torch.randn(1, MATRIX_COLUMNS + 1), torch.randn(1, 4)
    for name in ("auto", "jacobian"):
        root = make_root(name, wide, gain=1.5)
        torch.testing.assert_close(matrix(root, wide, x), 1.5 * jacobian_of(wide, x)[0])
    for name in ("exact", "matrix"):
        assert torch.equal(*(matrix(make_root(name, tied, gain=g), tied, y) for g in (1.0, 1.5)))


@pytest.mark.parametrize(
    "architecture",
    [
        Architecture(4, (6,), "silu", tied=True),
        Architecture(4, (6,), "sigmoid", "sigmoid", tied=True),
        Architecture(4, (6, 3), "sigmoid", tied=True),
        Architecture(4, (6,), "sigmoid"),
        Architecture(4, (6,), "sigmoid", tied=True, conditioned=True),
    ],
)
def test_the_exact_root_is_refused_for_other_architectures(
    architecture: Architecture, make_ae: Maker
) -> None:
    ae = make_ae(architecture)
    assert not has_exact_root(ae.architecture)
    assert isinstance(make_root("auto", ae), Matrix)
    with pytest.raises(RecipeError, match="exact"):
        make_root("exact", ae)


def test_a_root_is_chosen_by_its_name(make_ae: Maker) -> None:
    ae = make_ae(TIED)
    for name, kind in {
        "auto": Exact, "exact": Exact, "matrix": Matrix, "polynomial": Polynomial,
        "jacobian": Jacobian,
    }.items():  # fmt: skip
        assert isinstance(make_root(name, ae), kind)
    with pytest.raises(RecipeError, match="square"):
        make_root("square", ae)
    with pytest.raises(RecipeError, match="root_degree"):
        make_root("polynomial", ae, degree=1)


def test_the_exact_root_adds_no_weights_to_a_model(make_ae: Maker) -> None:
    assert not Exact(make_ae(TIED)).state_dict()
