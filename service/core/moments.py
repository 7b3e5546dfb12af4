"""The algebra of local moments, from r(x), the products A v and α (paper, section 3.3, appendix).

    asymptotic   mean r                        covariance α A
    inverted     mean x + (I - A)⁻¹ (r - x)    covariance α (I - A)⁻¹ A

A = (J + Jᵀ)/2 without its negative eigenvalues. Between two clusters one may exceed 1, and the
posterior is then wider than the noise; the inverse has no meaning there, so `inverted` clips them
below 1. The inverted mean is the paper's
(I - J)⁻¹ (r - J x) rewritten as x plus a correction, with A in J's place, so that one
eigen-decomposition serves both estimators and a J that is not quite contractive stays finite.

The eigenpairs come from service.core.spectrum.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.core.normaliser import Normaliser
from service.core.spectrum import Products, Spectrum, full_spectrum, leading_spectrum
from service.core.types import Doubles

Estimator = Literal["asymptotic", "inverted"]

FULL_JACOBIAN_DIMS = 128  # up to this width all of A costs no more than its leading part
LARGEST = 1.0 - 1e-4  # of an eigenvalue in (I - A)⁻¹, which has its pole at 1


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


def spectrum_of(
    products: Products, dims: int, rank: int, toward: Doubles | None = None
) -> Spectrum:  # fmt: skip
    """At least `rank` leading eigenpairs: from the whole A where d is small, else by Krylov."""
    if dims <= FULL_JACOBIAN_DIMS:
        return full_spectrum(products(np.eye(dims)))
    return leading_spectrum(products, dims, rank, toward)


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
