"""Roots as matrices: a root applied to identity noise shows the covariance that it draws."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.errors import RecipeError
from trainer.roots import Exact, Jacobian, Polynomial, Root, has_exact_root, make_root

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


@pytest.mark.parametrize(("degree", "error"), [(3, 0.053), (6, 0.017), (12, 0.005)])
def test_the_polynomial_roots_square_is_a_within_its_error(degree: int, error: float) -> None:
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


def test_the_jacobian_root_is_j(make_ae: Maker, jacobian_of: Callable[..., Tensor]) -> None:
    ae, x = make_ae(Architecture(4, (6, 3), "silu")), torch.randn(1, 4)
    torch.testing.assert_close(matrix(Jacobian(ae), ae, x), jacobian_of(ae, x)[0])


def test_the_gain_multiplies_the_jacobian_root_alone(
    make_ae: Maker, jacobian_of: Callable[..., Tensor]
) -> None:
    deep, tied, x = make_ae(Architecture(4, (6, 3), "silu")), make_ae(TIED), torch.randn(1, 4)
    for name in ("auto", "jacobian"):
        root = make_root(name, deep, gain=1.5)
        torch.testing.assert_close(matrix(root, deep, x), 1.5 * jacobian_of(deep, x)[0])
    exact = [matrix(make_root("exact", tied, gain=g), tied, x) for g in (1.0, 1.5)]
    assert torch.equal(*exact)


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
def test_the_exact_root_is_refused_where_j_has_no_such_form(
    architecture: Architecture, make_ae: Maker
) -> None:
    ae = make_ae(architecture)
    assert not has_exact_root(ae.architecture)
    assert isinstance(make_root("auto", ae), Jacobian)
    with pytest.raises(RecipeError, match="exact"):
        make_root("exact", ae)


def test_a_root_is_chosen_by_its_name(make_ae: Maker) -> None:
    ae = make_ae(TIED)
    for name, kind in {
        "auto": Exact, "exact": Exact, "polynomial": Polynomial, "jacobian": Jacobian
    }.items():  # fmt: skip
        assert isinstance(make_root(name, ae), kind)
    with pytest.raises(RecipeError, match="square"):
        make_root("square", ae)
    with pytest.raises(RecipeError, match="root_degree"):
        make_root("polynomial", ae, degree=1)


def test_the_exact_root_adds_no_weights_to_a_model(make_ae: Maker) -> None:
    assert not Exact(make_ae(TIED)).state_dict()
