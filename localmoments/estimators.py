"""The algebra of local moments at a point, from r(x), eigenpairs of A and α (paper, section 3.3).

    asymptotic   mean r                        covariance α A
    inverted     mean x + (I - A)⁻¹ (r - x)    covariance α (I - A)⁻¹ A

A = (J + Jᵀ)/2 without its negative eigenvalues. Between two clusters an eigenvalue may exceed 1:
the posterior is then wider than the noise.

The inverse has its pole at 1, and along a tangent of the data λ is close to 1 by construction.
There 1 - λ is training error, not signal, so `inverted` is bounded: no variance exceeds twice that
of the start points along its direction (`Spread`), or the asymptotic one if that is larger, and no
mean leaves their range by more than r does.
Without points of the data, directions with λ ≥ LARGEST keep their asymptotic moments. On Gaussian
data neither bound acts, and the answer is m and C.

The inverted mean is the paper's (I - J)⁻¹ (r - J x) rewritten as x plus a correction, with A in
J's place, so that one eigen-decomposition serves both estimators.

In the data's units, D = diag(scale), the covariance is D C D. Its leading pairs come from
the leading pairs of D A D (`estimate_scaled_moments`), or from all d pairs of A
(`convert_to_data_units`); a few pairs of A do not determine them. The eigenpairs come from
localmoments.spectrum.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles
from localmoments.columns import Normaliser
from localmoments.spectrum import Spectrum

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
    """How far the data reach, from some of their points in model units; (n, d)."""

    points: NDArray[np.floating]

    def along(self, U: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """Return the variance, the least and the largest coordinate along each row of U; (k,)."""
        at = np.asarray(self.points, np.float64) @ U.T  # (n, k)
        return at.var(axis=0), at.min(axis=0), at.max(axis=0)

    def within_columns(self, mean: Doubles, r: Doubles) -> Doubles:
        """Move every column of the mean into the range of the points and r; (d,)."""
        low, high = self.points.min(axis=0), self.points.max(axis=0)
        return np.clip(mean, np.minimum(low, r), np.maximum(high, r))

    @property
    def is_known(self) -> bool:
        """True if there are enough points to know a variance to a factor of two."""
        return len(self.points) >= FEWEST_POINTS


def estimate_moments(
    x: NDArray[np.floating],
    r: NDArray[np.floating],
    spectrum: Spectrum,
    alpha: float,
    estimator: Estimator,
    spread: Spread | None = None,
) -> PointMoments:
    """Return mean, covariance and score at x in the units of x, from eigenpairs of A.

    With k < d eigenpairs the inverted mean takes A for zero outside their span, where
    (I - A)⁻¹ is the identity.
    """
    x64, r64 = np.asarray(x, np.float64), np.asarray(r, np.float64)
    λ, U = np.maximum(spectrum.eigenvalues, 0.0), spectrum.vectors
    score = (r64 - x64) / alpha
    if estimator == "asymptotic":
        return PointMoments(r64, alpha * λ, _fix_signs(U), score)
    gain, shift, shrunk = _bound_gain(U, λ, U @ r64, U @ x64, alpha, spread)
    mean = r64 + shift @ U  # x + (I - A)⁻¹ (r - x)
    if shrunk and spread is not None and spread.is_known:
        mean = spread.within_columns(mean, r64)
    order = np.argsort(-gain, kind="stable")  # a bound may change it
    return PointMoments(mean, alpha * gain[order], _fix_signs(U[order]), score, shrunk)


def _bound_gain(
    U: Doubles, λ: Doubles, r: Doubles, x: Doubles, alpha: float, spread: Spread | None
) -> tuple[Doubles, Doubles, int]:
    """Return λ / (1 - λ), the mean's shift from r along U, and how many directions were bounded.

    r and x are coordinates along U; (k,).
    """
    is_clipped = λ >= LARGEST
    free = np.minimum(λ, LARGEST)
    free = free / (1.0 - free)
    if spread is None or not spread.is_known:
        gain = np.where(is_clipped, λ, free)
        return gain, gain * (r - x), int(is_clipped.sum())
    variance, low, high = spread.along(U)
    gain = np.minimum(free, np.maximum(SLACK * variance / alpha, λ))  # never below asymptotic
    unbounded = r + gain * (r - x)
    mean = np.clip(unbounded, np.minimum(low, r), np.maximum(high, r))
    return gain, mean - r, int((is_clipped | (gain < free) | (mean != unbounded)).sum())


def estimate_scaled_moments(
    x: NDArray[np.floating],
    r: NDArray[np.floating],
    spectrum: Spectrum,
    alpha: float,
    normaliser: Normaliser,
) -> PointMoments:
    """Return asymptotic moments in data units, from eigenpairs of D A D; x, r in model units."""
    x64, r64 = np.asarray(x, np.float64), np.asarray(r, np.float64)
    return PointMoments(
        normaliser.to_user(r64),
        alpha * np.maximum(spectrum.eigenvalues, 0.0),
        _fix_signs(spectrum.vectors),
        normaliser.score_to_user((r64 - x64) / alpha),
    )


def convert_to_data_units(moments: PointMoments, normaliser: Normaliser) -> PointMoments:
    """Convert moments to the units of the data: D m + shift and the spectrum of D C D.

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
    """Make the largest component of each tangent positive.

    The sign of an eigenvector is arbitrary. Fixing it makes the result independent of the method
    that found the eigenpairs.
    """
    peaks = np.take_along_axis(tangents, np.abs(tangents).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(tangents * np.where(peaks < 0, -1.0, 1.0))
