"""The algebra of local moments, from r(x), the products A v and α (paper, section 3.3, appendix).

    asymptotic   mean r                        covariance α A
    inverted     mean x + (I - A)⁻¹ (r - x)    covariance α (I - A)⁻¹ A

A = (J + Jᵀ)/2 with eigenvalues clipped to [0, 1). The inverted mean is the paper's
(I - J)⁻¹ (r - J x) rewritten as x plus a correction, with A in J's place, so that one
eigen-decomposition serves both estimators and a J that is not quite contractive stays finite.

Two ways to the eigenpairs: `full_spectrum` of an explicit A, and `leading_spectrum`, a block
Krylov method that only asks for products A v and never forms the d x d matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.core.normaliser import Normaliser
from service.core.types import Doubles

Estimator = Literal["asymptotic", "inverted"]
Products = Callable[[Doubles], Doubles]  # (k, d) rows v -> rows A v

LARGEST = 1.0 - 1e-4  # eigenvalues are clipped below 1, where (I - A)⁻¹ has its pole


@dataclass(frozen=True)
class Spectrum:
    """Leading eigenpairs of A, largest first, clipped to [0, 1)."""

    eigenvalues: Doubles  # (k,)
    vectors: Doubles  # (k, d), orthonormal rows


@dataclass(frozen=True)
class Moments:
    """Local mean, and the covariance as its leading eigenpairs."""

    mean: Doubles  # (d,)
    eigenvalues: Doubles  # (k,), of the covariance
    tangents: Doubles  # (k, d), orthonormal rows
    score: Doubles  # (d,), (r - x) / α

    def covariance(self) -> Doubles:
        """Σᵢ λᵢ uᵢ uᵢᵀ: the whole covariance if all d eigenpairs are there."""
        return (self.tangents.T * self.eigenvalues) @ self.tangents  # (d, d)


def full_spectrum(J: NDArray[np.floating]) -> Spectrum:
    """Every eigenpair of A = (J + Jᵀ)/2, for J of shape (d, d)."""
    A = (np.asarray(J, np.float64) + np.asarray(J, np.float64).T) / 2
    values, vectors = np.linalg.eigh(A)  # ascending
    return Spectrum(np.clip(values[::-1], 0.0, LARGEST), vectors[:, ::-1].T.copy())


def leading_spectrum(
    products: Products, dims: int, rank: int, *, blocks: int = 4, extra: int = 8, seed: int = 0
) -> Spectrum:
    """The `rank` largest eigenpairs of A by block Krylov: Rayleigh-Ritz on [Q, AQ, A²Q, ...].

    Each new block is orthogonalised twice against what stands, so the basis stays orthonormal
    to rounding; the start block is fixed by the seed, so the answer is repeatable.
    """
    width = min(dims, rank + extra)
    block = np.random.default_rng(seed).standard_normal((width, dims))
    basis = np.zeros((0, dims))
    images = np.zeros((0, dims))
    for _ in range(blocks):
        block = _orthonormal_rows(block, basis)[: dims - len(basis)]
        if not len(block):
            break
        image = products(block)  # (w, d)
        basis, images = np.vstack([basis, block]), np.vstack([images, image])
        block = image
    T = basis @ images.T
    values, ritz = np.linalg.eigh((T + T.T) / 2)
    keep = slice(None, -rank - 1, -1)
    return Spectrum(np.clip(values[keep], 0.0, LARGEST), (ritz[:, keep].T @ basis))


def _orthonormal_rows(block: Doubles, basis: Doubles) -> Doubles:
    """Rows of the block, orthonormal and orthogonal to the basis; dependent rows fall out."""
    block = block / np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1e-300)
    for _ in range(2):
        block = block - (block @ basis.T) @ basis
        U, s, Vt = np.linalg.svd(block, full_matrices=False)
        block = Vt[s > 1e-6 * max(float(s.max(initial=0.0)), 1e-6)]
    return np.asarray(block, np.float64)


def local_moments(
    x: NDArray[np.floating],
    r: NDArray[np.floating],
    spectrum: Spectrum,
    alpha: float,
    estimator: Estimator,
) -> Moments:
    """Mean, covariance and score at x, in the units of x.

    With k < d eigenpairs the inverted mean takes A for zero outside their span, where
    (I - A)⁻¹ is the identity.
    """
    x64, r64 = np.asarray(x, np.float64), np.asarray(r, np.float64)
    λ, U = spectrum.eigenvalues, spectrum.vectors
    score = (r64 - x64) / alpha
    if estimator == "asymptotic":
        return Moments(r64, alpha * λ, U, score)
    gain = λ / (1.0 - λ)
    mean = r64 + (gain * (U @ (r64 - x64))) @ U  # x + (I - A)⁻¹ (r - x)
    return Moments(mean, alpha * gain, U, score)


def in_user_units(moments: Moments, normaliser: Normaliser) -> Moments:
    """The same moments in the units of the user's data: D m + shift and the spectrum of D C D."""
    factor = np.sqrt(moments.eigenvalues)[:, None] * moments.tangents * normaliser.scale  # (k, d)
    _, s, tangents = np.linalg.svd(factor, full_matrices=False)
    mean, score = normaliser.to_user(moments.mean), normaliser.score_to_user(moments.score)
    return Moments(mean, s**2, tangents, score)
