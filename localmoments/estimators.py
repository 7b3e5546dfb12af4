"""The algebra of local moments, from r(x), the products A v and α (paper, section 3.3, appendix).

    asymptotic   mean r                        covariance α A
    inverted     mean x + (I - A)⁻¹ (r - x)    covariance α (I - A)⁻¹ A

A = (J + Jᵀ)/2 without its negative eigenvalues. Between two clusters an eigenvalue may exceed 1:
the posterior is then wider than the noise.

The inverse has its pole at 1, and along a tangent of the data λ is close to 1 by construction.
There 1 - λ is what training left of it, not a measurement, so `inverted` is bounded: no variance
exceeds twice that of the start points along its direction (`Spread`), or the asymptotic one if that
is larger, and no mean leaves their range by more than r does.
Without points of the data, directions with λ ≥ LARGEST keep their asymptotic moments. On Gaussian
data neither bound acts, and the answer is m and C.

The inverted mean is the paper's (I - J)⁻¹ (r - J x) rewritten as x plus a correction, with A in
J's place, so that one eigen-decomposition serves both estimators.

In the data's units, D = diag(scale), the covariance is D C D. Its leading pairs come from
the leading pairs of D A D (`scaled_moments`), or from all d pairs of A (`in_user_units`); a few
pairs of A do not determine them. The eigenpairs come from localmoments.spectrum.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles
from localmoments.columns import Normaliser
from localmoments.spectrum import Spectrum, full_spectrum, leading_spectrum

Estimator = Literal["asymptotic", "inverted"]
Units = Literal["data", "standard"]  # the user's, or the model's own

FULL_JACOBIAN_DIMS = 128  # up to this width all of A costs no more than its leading part
LARGEST = 1.0 - 1e-4  # of an eigenvalue in (I - A)⁻¹, which has its pole at 1
FEWEST_POINTS = 64  # from which a variance is known to a factor of two
SLACK = 2.0  # times the points' variance: they are a sample, some of them drawn by the model


@dataclass(frozen=True)
class PointMoments:
    """Local mean at one point, and the covariance as its leading eigenpairs."""

    mean: Doubles  # (d,)
    eigenvalues: Doubles  # (k,), of the covariance, none negative
    tangents: Doubles  # (k, d), orthonormal rows, the largest component positive
    score: Doubles  # (d,), (r - x) / α
    shrunk: int = 0  # directions that were bounded by the data's spread

    def covariance(self) -> Doubles:
        """Σᵢ λᵢ uᵢ uᵢᵀ: the whole covariance if all d eigenpairs are there."""
        return (self.tangents.T * self.eigenvalues) @ self.tangents  # (d, d)


@dataclass(frozen=True)
class Spread:
    """How far the data reaches, from points of it in the model's units; (n, d)."""

    points: NDArray[np.floating]

    def along(self, U: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """Variance, least and largest coordinate along each row of U; (k,) each."""
        at = np.asarray(self.points, np.float64) @ U.T  # (n, k)
        return at.var(axis=0), at.min(axis=0), at.max(axis=0)

    def within_columns(self, mean: Doubles, r: Doubles) -> Doubles:
        """The mean with every column moved into the points' range, or as far as r; (d,)."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        return np.clip(mean, np.minimum(low, r), np.maximum(high, r))

    @property
    def is_known(self) -> bool:
        return len(self.points) >= FEWEST_POINTS


def spectrum_of(
    products: Callable[[Doubles], Doubles],
    dims: int,
    rank: int,
    toward: Doubles | None = None,
    scale: Doubles | None = None,
) -> Spectrum:
    """At least `rank` leading eigenpairs of A, or of D A D with D = diag(scale): from the whole
    matrix where d is small, else by Krylov."""
    if dims <= FULL_JACOBIAN_DIMS:
        return full_spectrum(products(np.eye(dims)), scale)
    return leading_spectrum(products, dims, rank, toward, scale)


def local_moments(
    x: NDArray[np.floating],
    r: NDArray[np.floating],
    spectrum: Spectrum,
    alpha: float,
    estimator: Estimator,
    spread: Spread | None = None,
) -> PointMoments:
    """Mean, covariance and score at x in the units of x, from eigenpairs of A.

    With k < d eigenpairs the inverted mean takes A for zero outside their span, where
    (I - A)⁻¹ is the identity.
    """
    x64, r64 = np.asarray(x, np.float64), np.asarray(r, np.float64)
    λ, U = np.maximum(spectrum.eigenvalues, 0.0), spectrum.vectors
    score = (r64 - x64) / alpha
    if estimator == "asymptotic":
        return PointMoments(r64, alpha * λ, _fix_signs(U), score)
    gain, moved, shrunk = _bound_gain(U, λ, U @ r64, U @ x64, alpha, spread)
    mean = r64 + moved @ U  # x + (I - A)⁻¹ (r - x)
    if shrunk and spread is not None and spread.is_known:
        mean = spread.within_columns(mean, r64)
    order = np.argsort(-gain, kind="stable")  # a bound may change it
    return PointMoments(mean, alpha * gain[order], _fix_signs(U[order]), score, shrunk)


def _bound_gain(
    U: Doubles, λ: Doubles, r: Doubles, x: Doubles, alpha: float, spread: Spread | None
) -> tuple[Doubles, Doubles, int]:
    """λ / (1 - λ), the mean's way from r along each eigenvector, and how many of them were bounded.

    r and x are coordinates along U; (k,).
    """
    clipped = λ >= LARGEST
    free = np.minimum(λ, LARGEST)
    free = free / (1.0 - free)
    if spread is None or not spread.is_known:
        gain = np.where(clipped, λ, free)
        return gain, gain * (r - x), int(clipped.sum())
    variance, low, high = spread.along(U)
    gain = np.minimum(free, np.maximum(SLACK * variance / alpha, λ))  # never below asymptotic
    wanted = r + gain * (r - x)
    mean = np.clip(wanted, np.minimum(low, r), np.maximum(high, r))
    return gain, mean - r, int((clipped | (gain < free) | (mean != wanted)).sum())


def scaled_moments(
    x: NDArray[np.floating],
    r: NDArray[np.floating],
    spectrum: Spectrum,
    alpha: float,
    normaliser: Normaliser,
) -> PointMoments:
    """Asymptotic moments in the user's units, from eigenpairs of D A D; x and r in the model's."""
    x64, r64 = np.asarray(x, np.float64), np.asarray(r, np.float64)
    return PointMoments(
        normaliser.to_user(r64),
        alpha * np.maximum(spectrum.eigenvalues, 0.0),
        _fix_signs(spectrum.vectors),
        normaliser.score_to_user((r64 - x64) / alpha),
    )


def in_user_units(moments: PointMoments, normaliser: Normaliser) -> PointMoments:
    """The same moments in the units of the user's data: D m + shift and the spectrum of D C D.

    Columns of different scales need all d pairs: raises ValueError for fewer.
    """
    mean, score = normaliser.to_user(moments.mean), normaliser.score_to_user(moments.score)
    if normaliser.is_uniform:
        values = moments.eigenvalues * normaliser.scale[0] ** 2
        return replace(moments, mean=mean, eigenvalues=values, score=score)
    k, d = moments.tangents.shape
    if k < d:
        raise ValueError(f"{k} of {d} eigenpairs do not determine those in other units")
    values, vectors = np.linalg.eigh(normaliser.covariance_to_user(moments.covariance()))
    values, tangents = np.maximum(values[::-1], 0.0), _fix_signs(vectors[:, ::-1].T)
    return PointMoments(mean, values, tangents, score, moments.shrunk)


def _fix_signs(tangents: Doubles) -> Doubles:
    """A tangent's sign means nothing. Its largest component is made positive, so that the same
    point gives the same answer whichever way the eigenpairs were found."""
    peaks = np.take_along_axis(tangents, np.abs(tangents).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(tangents * np.where(peaks < 0, -1.0, 1.0))
