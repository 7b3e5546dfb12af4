"""Auto-encoders whose behaviour is known: random ones, and the best one for Gaussian data."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from trainer.autoencoder import Architecture, AutoEncoder

Maker = Callable[..., AutoEncoder]


def random_auto_encoder(architecture: Architecture, seed: int = 0) -> AutoEncoder:
    """Every parameter drawn, so that none hides behind its initial zero."""
    g = torch.Generator().manual_seed(seed)
    ae = AutoEncoder(architecture).eval()
    with torch.no_grad():
        for p in ae.parameters():
            fan = p.shape[1] if p.dim() == 2 else 4
            p.copy_(torch.randn(p.shape, generator=g) / fan**0.5)
    return ae


@pytest.fixture(scope="session")
def make_ae() -> Maker:
    return random_auto_encoder


@pytest.fixture
def generator() -> Generator:
    return torch.Generator().manual_seed(7)


def batch_jacobian(f: Callable[[Tensor], Tensor], x: Tensor, **kwargs: bool) -> Tensor:
    """∂f/∂x of every row by autograd, for an f that treats rows one by one; (B, m, n)."""
    J = torch.autograd.functional.jacobian(lambda z: f(z).sum(0), x, **kwargs)  # (m, B, n)
    assert isinstance(J, Tensor)
    return J.transpose(0, 1)


@pytest.fixture
def jacobian_of() -> Callable[..., Tensor]:
    return batch_jacobian


@dataclass(frozen=True)
class GaussianCase:
    """N(m, C), and the auto-encoder that is optimal for it: r(x) = m + A (x - m)."""

    ae: AutoEncoder  # linear, tied: J = Wᵀ W = A
    m: NDArray[np.float64]  # (d,)
    C: NDArray[np.float64]  # (d, d)
    A: NDArray[np.float64]  # C (C + α I)⁻¹
    sigma: float  # α = σ²
    Q: NDArray[np.float64]  # eigenvectors of C and A, in columns
    c: NDArray[np.float64]  # eigenvalues of C
    a: NDArray[np.float64]  # eigenvalues of A

    def with_spectrum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The matrix that has these eigenvalues along C's eigenvectors."""
        return (self.Q * values) @ self.Q.T


def gaussian_case() -> GaussianCase:
    rng, d, sigma = np.random.default_rng(3), 4, 0.6
    Q, _ = np.linalg.qr(rng.standard_normal((d, d)))
    c = np.array([2.0, 0.7, 0.2, 0.03])
    a = c / (c + sigma**2)
    A, m, b = (Q * a) @ Q.T, rng.standard_normal(d), rng.standard_normal(d)
    W = np.sqrt(a)[:, None] * Q.T  # (d, d)
    ae = AutoEncoder(Architecture(d, (d,), "linear", "linear", tied=True)).eval()
    weights = {"encoder.0.weight": W, "encoder.0.bias": b, "decoder.0.bias": m - A @ m - W.T @ b}
    ae.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    return GaussianCase(ae, m, (Q * c) @ Q.T, A, sigma, Q, c, a)


@pytest.fixture
def gaussian() -> GaussianCase:
    return gaussian_case()
