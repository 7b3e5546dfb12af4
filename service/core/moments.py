"""The algebra of local moments, from r(x), the products A v and α (paper, section 3.3, appendix).

    asymptotic   mean r                        covariance α A
    inverted     mean x + (I - A)⁻¹ (r - x)    covariance α (I - A)⁻¹ A

A = (J + Jᵀ)/2 without its negative eigenvalues. Between two clusters one may exceed 1, and the
posterior is then wider than the noise; the inverse has no meaning there, so `inverted` clips them
below 1. The inverted mean is the paper's
(I - J)⁻¹ (r - J x) rewritten as x plus a correction, with A in J's place, so that one
eigen-decomposition serves both estimators and a J that is not quite contractive stays finite.

Two ways to the eigenpairs: `full_spectrum` of an explicit A, and `leading_spectrum`, a block
Krylov method that only asks for products A v and never forms the d x d matrix. `Krylov` is that
method for one who computes the products of many points together.
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

BLOCKS, EXTRA = 4, 8  # how far a Krylov space grows, and rows beyond the rank in each block
FULL_JACOBIAN_DIMS = 128  # up to this width all of A costs no more than its leading part
LARGEST = 1.0 - 1e-4  # of an eigenvalue in (I - A)⁻¹, which has its pole at 1


@dataclass(frozen=True)
class Spectrum:
    """Leading eigenpairs of A, largest first, none negative."""

    eigenvalues: Doubles  # (k,)
    vectors: Doubles  # (k, d), orthonormal rows

    def leading(self, rank: int) -> "Spectrum":
        return Spectrum(self.eigenvalues[:rank], self.vectors[:rank])


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
    return Spectrum(np.maximum(values[::-1], 0.0), vectors[:, ::-1].T.copy())


def leading_spectrum(
    products: Products, dims: int, rank: int, *, blocks: int = BLOCKS, extra: int = EXTRA,
    seed: int = 0,
) -> Spectrum:  # fmt: skip
    """The `rank` largest eigenpairs of A by block Krylov; the seed makes it repeatable."""
    space = Krylov.begin(random_block(dims, rank + extra, seed))
    for _ in range(blocks):
        block = space.next_block()
        if not len(block):
            break
        space = space.grown(block, products(block))
    return space.spectrum().leading(rank)


def random_block(dims: int, width: int, seed: int = 0) -> Doubles:
    """Rows for a Krylov space to begin with; (min(width, dims), dims)."""
    return np.random.default_rng(seed).standard_normal((min(dims, width), dims))


@dataclass(frozen=True)
class Krylov:
    """The space spanned by [Q, AQ, A²Q, ...], grown a block at a time, and A's action on it.

    It says which products it wants next and is told them, so that whoever has many points can
    ask for the products of all of them at once. Each new block is orthogonalised twice against
    what stands, so the basis stays orthonormal to rounding.
    """

    basis: Doubles  # (n, d), orthonormal rows
    images: Doubles  # (n, d), rows A b
    ahead: Doubles  # (w, d), what the next block is made of

    @classmethod
    def begin(cls, start: Doubles) -> "Krylov":
        nothing = np.zeros((0, start.shape[1]))
        return cls(nothing, nothing, start)

    def next_block(self) -> Doubles:
        """Rows v whose products A v are wanted; none where the space cannot grow."""
        room = self.basis.shape[1] - len(self.basis)
        return _orthonormal_rows(self.ahead, self.basis)[:room]

    def grown(self, block: Doubles, products: Doubles) -> "Krylov":
        basis, images = np.vstack([self.basis, block]), np.vstack([self.images, products])
        return Krylov(basis, images, products)

    def spectrum(self) -> Spectrum:
        """Rayleigh-Ritz: the eigenpairs of A restricted to the space."""
        T = self.basis @ self.images.T
        values, ritz = np.linalg.eigh((T + T.T) / 2)  # ascending
        return Spectrum(np.maximum(values[::-1], 0.0), ritz[:, ::-1].T @ self.basis)


def _orthonormal_rows(block: Doubles, basis: Doubles) -> Doubles:
    """Rows of the block, orthonormal and orthogonal to the basis; dependent rows fall out."""
    block = block / np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1e-300)
    for _ in range(2):
        block = block - (block @ basis.T) @ basis
        U, s, Vt = np.linalg.svd(block, full_matrices=False)
        block = Vt[s > 1e-6 * max(float(s.max(initial=0.0)), 1e-6)]
    return np.asarray(block, np.float64)


def spectrum_of(products: Products, dims: int, rank: int) -> Spectrum:
    """At least `rank` leading eigenpairs: from the whole A where d is small, else by Krylov."""
    if dims <= FULL_JACOBIAN_DIMS:
        return full_spectrum(products(np.eye(dims)))
    return leading_spectrum(products, dims, rank)


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
    λ = np.minimum(λ, LARGEST)
    gain = λ / (1.0 - λ)
    mean = r64 + (gain * (U @ (r64 - x64))) @ U  # x + (I - A)⁻¹ (r - x)
    return Moments(mean, alpha * gain, U, score)


def in_user_units(moments: Moments, normaliser: Normaliser) -> Moments:
    """The same moments in the units of the user's data: D m + shift and the spectrum of D C D.

    A tangent's sign means nothing; its largest component is made positive, so that the same
    point gives the same answer whichever way the eigenpairs were found.
    """
    values, tangents = _scaled_spectrum(moments, normaliser.scale)
    peaks = np.take_along_axis(tangents, np.abs(tangents).argmax(axis=1)[:, None], axis=1)
    tangents = tangents * np.where(peaks < 0, -1.0, 1.0)
    mean, score = normaliser.to_user(moments.mean), normaliser.score_to_user(moments.score)
    return Moments(mean, values, tangents, score)


def _scaled_spectrum(moments: Moments, scale: Doubles) -> tuple[Doubles, Doubles]:
    """Eigenpairs of D C D; those of C where D is a number, as it is for images."""
    if np.all(scale == scale[0]):
        return moments.eigenvalues * scale[0] ** 2, moments.tangents
    factor = np.sqrt(moments.eigenvalues)[:, None] * moments.tangents * scale  # (k, d)
    _, s, tangents = np.linalg.svd(factor, full_matrices=False)
    return s**2, tangents
