"""Gaussians given measurements: known columns, or any linear measurements with errors.

For X ~ N(r, P) and a measurement y = H X + √S η, with S = diag(s²),

    K = H P Hᵀ + S                               the measurement's own covariance
    E[X | y] = r + P Hᵀ K⁻¹ (y - H r)
    Cov[X | y] = P - P Hᵀ K⁻¹ H P
    log p(y) = -½ (y - H r)ᵀ K⁻¹ (y - H r) - ½ log det 2πK

A known column is a row of H with a single 1; s = 0 says that it is known exactly. A zero row of H
measures nothing, so H = diag(mask) gives every row of a batch its own mask. K may be singular, as
P is off the data's manifold: K⁻¹ is a pseudo-inverse, and directions in which the measurement
cannot vary are not used.

Everything is float64 and batched over leading axes; a row's result does not depend on the others.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles

CUTOFF = 1e-12  # of a covariance's largest eigenvalue: what is below it is rounding


@dataclass(frozen=True)
class Measurement:
    """y = H X + √S η."""

    H: Doubles  # (..., m, d)
    y: Doubles  # (..., m)
    variance: Doubles  # (..., m), the diagonal of S

    @classmethod
    def of_columns(cls, mask: NDArray[np.bool_], values: Doubles, std: Doubles) -> "Measurement":
        """Known columns; mask, values and std are (..., d), and only known entries are read.

        Example: `Gaussian(r, P).given(Measurement.of_columns(mask, values, std))`
        """
        H = mask[..., None] * np.eye(mask.shape[-1])
        y = np.where(mask, values, 0.0)
        return cls(H, y, np.where(mask, np.square(std), 0.0))

    def with_error(self, variance: Doubles) -> "Measurement":
        """Add an independent error to all measurements; variance is (...), one per row."""
        measures = np.any(self.H != 0, axis=-1)
        further = np.where(measures, variance[..., None], 0.0)
        return Measurement(self.H, self.y, self.variance + further)


@dataclass(frozen=True)
class Gaussian:
    """N(mean, covariance); the covariance may be singular."""

    mean: Doubles  # (..., d)
    covariance: Doubles  # (..., d, d)

    @classmethod
    def of_products(cls, mean: Doubles, A: Doubles, t: float) -> "Gaussian":
        """Make N(mean, t²A₊), where A₊ is A's symmetric part without negative eigenvalues."""
        λ, U = np.linalg.eigh((A + np.swapaxes(A, -1, -2)) / 2)
        λ = t**2 * np.maximum(λ, 0.0)
        local = cls(mean, (U * λ[..., None, :]) @ np.swapaxes(U, -1, -2))
        local.__dict__["_pairs"] = λ, U  # the cached property: a draw needs no second eigh
        return local

    @cached_property
    def _pairs(self) -> tuple[Doubles, Doubles]:
        return _eigenpairs(self.covariance)

    @property
    def least_variance(self) -> Doubles:
        """The smallest eigenvalue; no submatrix of the covariance has a smaller one; (...)."""
        least: Doubles = self._pairs[0].min(axis=-1)
        return least

    def draw(self, ε: Doubles) -> Doubles:
        """Return mean + covariance^{1/2} ε; (..., d)."""
        λ, U = self._pairs
        return self.mean + _apply(U, np.sqrt(λ) * _apply_transposed(U, ε))

    def log_density(self, x: Doubles) -> Doubles:
        """Return the log density on the covariance's support; (...)."""
        return _log_density(x - self.mean, *self._pairs)

    def given(self, seen: Measurement) -> "Gaussian":
        """Return the law of X given the measurement."""
        G = gain(self.covariance, seen)  # (..., d, m)
        covariance = self.covariance - G @ (seen.H @ self.covariance)
        mean = self.mean + _apply(G, seen.y - _apply(seen.H, self.mean))
        return Gaussian(mean, (covariance + np.swapaxes(covariance, -1, -2)) / 2)

    def log_evidence(self, seen: Measurement) -> Doubles:
        """Return log p(y); (...)."""
        K, size = _innovation(self.covariance, seen)
        away = (seen.y - _apply(seen.H, self.mean)) / size
        log: Doubles = _log_density(away, *_eigenpairs(K)) - np.log(size).sum(axis=-1)
        return log


def gain(P: Doubles, seen: Measurement) -> Doubles:
    """Return the Kalman gain P Hᵀ K⁻¹; (..., d, m)."""
    K, size = _innovation(P, seen)
    λ, U = _eigenpairs(K)
    inverse = np.where(λ > 0, 1.0 / np.where(λ > 0, λ, 1.0), 0.0)
    PHt = P @ np.swapaxes(seen.H, -1, -2) / size[..., None, :]
    product: Doubles = ((PHt @ U) * inverse[..., None, :]) @ np.swapaxes(U, -1, -2)
    return product / size[..., None, :]


def bridge(posterior: Gaussian, y: Doubles, t: float, s: float) -> Gaussian:
    """Return the law of X + sε' for s < t, given y = X + tε, where X given y is `posterior`.

    Between X and y lies a Brownian bridge: given both, the point at level s is
    N(X + q (y - X), s² (1 - q)) with q = s²/t².
    """
    q = (s / t) ** 2
    around = s**2 * (1 - q) * np.eye(y.shape[-1])
    return Gaussian(q * y + (1 - q) * posterior.mean, (1 - q) ** 2 * posterior.covariance + around)


def draw_given(
    local: Gaussian, seen: Measurement, ε: Doubles, η: Doubles
) -> tuple[Doubles, Doubles]:
    """Return a draw of X given the measurement, and its conditional mean; both (..., d).

    Matheron's rule: with x ~ N(r, P), X = x + P Hᵀ K⁻¹ (y + √S η - H x). It needs neither K's
    eigenvectors nor the conditional covariance, so it is several times faster than
    `local.given(seen).draw(ε)`, which has the same law. K must not be singular where H measures.
    """
    x, error = local.draw(ε), np.sqrt(seen.variance) * η
    K = seen.H @ local.covariance @ np.swapaxes(seen.H, -1, -2)
    # A zero row of H measures nothing. A 1 on its diagonal keeps K invertible.
    unused = ~np.any(seen.H != 0, axis=-1)
    K = K + np.where(unused, 1.0, seen.variance)[..., None] * np.eye(K.shape[-1])
    residuals = [seen.y + error - _apply(seen.H, x), seen.y - _apply(seen.H, local.mean)]
    w = np.linalg.solve(K, np.stack(np.broadcast_arrays(*residuals), axis=-1))  # (..., m, 2)
    shift = local.covariance @ (np.swapaxes(seen.H, -1, -2) @ w)  # (..., d, 2)
    return x + shift[..., 0], local.mean + shift[..., 1]


def _innovation(P: Doubles, seen: Measurement) -> tuple[Doubles, Doubles]:
    """Return D⁻¹ K D⁻¹ with a diagonal of ones, and D (..., m).

    Without the scaling, one measurement with a large error would push the eigenvalues of the
    others below CUTOFF.
    """
    K = seen.H @ P @ np.swapaxes(seen.H, -1, -2)
    K = K + seen.variance[..., None] * np.eye(seen.H.shape[-2])
    variance = np.diagonal(K, axis1=-2, axis2=-1)
    size = np.sqrt(np.where(variance > 0, variance, 1.0))
    return K / size[..., None] / size[..., None, :], size


def _eigenpairs(C: Doubles) -> tuple[Doubles, Doubles]:
    """Return eigenvalues (..., d), zero below CUTOFF, and eigenvectors as columns."""
    λ, U = np.linalg.eigh(C)
    return np.where(λ > CUTOFF * λ[..., -1:], np.maximum(λ, 0.0), 0.0), U


def _log_density(away: Doubles, λ: Doubles, U: Doubles) -> Doubles:
    e = _apply_transposed(U, away)  # (..., d)
    used = λ > 0
    safe = np.where(used, λ, 1.0)
    terms = np.where(used, np.square(e) / safe + np.log(2 * np.pi * safe), 0.0)
    total: Doubles = -0.5 * terms.sum(axis=-1)
    return total


def _apply(M: Doubles, v: Doubles) -> Doubles:
    out: Doubles = (M @ v[..., None])[..., 0]
    return out


def _apply_transposed(M: Doubles, v: Doubles) -> Doubles:
    return _apply(np.swapaxes(M, -1, -2), v)
