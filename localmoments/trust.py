"""Indicators of whether local moments can be trusted, and the local intrinsic dimension.

For the posterior mean r of any density, J = ∂r/∂x is symmetric and σ² J is a covariance, so no
eigenvalue is negative. On data along a manifold no eigenvalue exceeds 1 either. A trained network
need not satisfy this, least of all away from the data.

    asymmetry         ‖J − Jᵀ‖ / ‖J + Jᵀ‖, Frobenius norms; 0 for a posterior mean, 1 for random J
    mass_below_zero   Σ max(−λ, 0) / Σ |λ|, over the eigenvalues λ of A = (J + Jᵀ)/2
    mass_above_one    Σ max(λ − 1, 0) / Σ |λ|
    clipped           eigenvalues that the estimator replaced: negative ones for `asymptotic`,
                      those of at least LARGEST for `inverted`
    typicality        percentile of t(x) = ‖x − r‖² − σ² tr J among clean held-out rows
    dimension         tr J + ‖r − x‖²/σ² (FLIPD); tends to k on a k-dimensional manifold as σ → 0

Sums over all eigenvalues come from all of them, or from a Krylov space by Gauss quadrature:
tr f(A) ≈ mean over g of Σᵢ f(θᵢ) (gᵀuᵢ)², for the random g ~ N(0, I) that the space started with
and its Ritz pairs (θᵢ, uᵢ). Norms and traces come from all unit vectors, or by Hutchinson's
estimator from fixed probes v of ±1: tr J ≈ mean vᵀJ v, ‖B‖² ≈ mean ‖B v‖².
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Arrays, Doubles, Floats
from localmoments.estimators import FULL_JACOBIAN_DIMS, LARGEST, Estimator
from localmoments.graph_calls import Call, Calls, run_calls
from localmoments.spectrum import Spectrum, start_vectors

if TYPE_CHECKING:
    from localmoments.model import Model

PROBES = 32  # vectors of ±1 that replace the unit vectors beyond FULL_JACOBIAN_DIMS columns
ROUNDING = 1e-6  # of the largest eigenvalue: negative ones closer to 0 are float32's rounding
CHUNK_VALUES = 2**20  # numbers in the vectors of one graph call of `typicality_statistics`

# Held-out rows of the shipped models stay below 0.55, 0.20 and 0.06.
MOST_ASYMMETRY = 0.7
MOST_BELOW_ZERO = 0.25
MOST_ABOVE_ONE = 0.1
LEAST_TYPICAL, MOST_TYPICAL = 0.5, 99.5  # percentiles


@dataclass(frozen=True)
class Trust:
    """Indicators at one point; None if one was not computed."""

    asymmetry: float | None
    mass_below_zero: float | None
    mass_above_one: float | None
    clipped: int
    shrunk: int
    typicality: float | None
    exact: bool  # from all eigenvalues and unit vectors; otherwise the figures are estimates

    @property
    def warnings(self) -> list[str]:
        """One sentence for each value that is out of range."""
        sentences = []
        if self.asymmetry is not None and self.asymmetry > MOST_ASYMMETRY:
            sentences.append(
                f"J is far from symmetric: asymmetry {self.asymmetry:.3g} exceeds "
                f"{MOST_ASYMMETRY:g}, so r is not a posterior mean here."
            )
        if self.mass_below_zero is not None and self.mass_below_zero > MOST_BELOW_ZERO:
            sentences.append(
                f"{self.mass_below_zero:.0%} of the eigenvalue mass is negative and was set to 0: "
                "the covariance is unreliable here."
            )
        if self.mass_above_one is not None and self.mass_above_one > MOST_ABOVE_ONE:
            sentences.append(
                f"{self.mass_above_one:.0%} of the eigenvalue mass exceeds 1: the point lies "
                "between clusters or away from the data."
            )
        if self.shrunk:
            sentences.append(
                f"The inverse was bounded by the data's own spread in {self.shrunk} directions: "
                "mean and eigenvalues there are bounds, not estimates."
            )
        if self.typicality is not None and self.typicality >= MOST_TYPICAL:
            sentences.append(
                f"The model moves this point further than {self.typicality:.4g}% of held-out rows: "
                "it is not like the data."
            )
        if self.typicality is not None and self.typicality <= LEAST_TYPICAL:
            sentences.append(
                f"The model moves this point less than {100 - self.typicality:.4g}% of held-out "
                "rows: it is not like the data."
            )
        return sentences

    def as_dict(self) -> dict[str, object]:
        """Return the indicators that were computed, and the warnings."""
        return {k: v for k, v in vars(self).items() if v is not None} | {"warnings": self.warnings}


@lru_cache(maxsize=16)
def make_probes(dims: int) -> Floats:
    """Return all unit vectors, or the same PROBES rows of ±1 every time; (k, d)."""
    if dims <= FULL_JACOBIAN_DIMS:
        return np.eye(dims, dtype=np.float32)
    signs = np.random.default_rng(0).integers(0, 2, (PROBES, dims))
    return (2 * signs - 1).astype(np.float32)


def repeat_probes(z: Floats) -> Floats:
    """Return the probes once per row of z (n, d); (n, k, d)."""
    v = make_probes(z.shape[1])
    return np.ascontiguousarray(np.broadcast_to(v, (len(z), *v.shape)))


def find_traces(z: Floats, level: Arrays) -> Calls[Doubles]:
    """Return tr J at every row, (n,); z is (n, d), level is `model.noise_level(n, sigma)`."""
    out = yield Call("moments", {"x": z, "v": repeat_probes(z), **level})
    return estimate_traces(out["products"])


def find_traces_and_asymmetries(z: Floats, level: Arrays) -> Calls[tuple[Doubles, Doubles]]:
    """Return tr J and ‖J − Jᵀ‖ / ‖J + Jᵀ‖ at every row; (n,), (n,)."""
    v = repeat_probes(z)
    out = yield Call("jacobian", {"x": z, "v": v, "w": v, **level})
    return estimate_traces(out["jvp"]), estimate_asymmetries(out["jvp"], out["vjp"])


def estimate_traces(products: NDArray[np.floating]) -> Doubles:
    """Return tr J of every point, from its products with the probes; (n, k, d) -> (n,)."""
    d = products.shape[2]
    v = make_probes(d)
    along = np.einsum("nkd,kd->nk", products, v, dtype=np.float64)
    # The mean over k probes of ±1, each of squared length d; or the sum over d unit vectors.
    trace: Doubles = along.sum(axis=1) * (d / np.square(v).sum(dtype=np.float64))
    return trace


def estimate_asymmetries(jvp: NDArray[np.floating], vjp: NDArray[np.floating]) -> Doubles:
    """Return ‖J − Jᵀ‖ / ‖J + Jᵀ‖ of every point, from J v and Jᵀ v; (n, k, d) -> (n,)."""
    difference = np.square(jvp - vjp, dtype=np.float64).sum(axis=(1, 2))
    total = np.square(jvp + vjp, dtype=np.float64).sum(axis=(1, 2))
    ratio: Doubles = np.sqrt(difference / np.maximum(total, 1e-300))
    return ratio


def measure_masses(spectrum: Spectrum) -> tuple[float, float]:
    """Return the shares of Σ |λ| below 0 and above 1."""
    λ, U = spectrum.eigenvalues, spectrum.vectors
    k, d = U.shape
    w = np.ones(k)
    if k < d:
        w = np.square(U @ start_vectors(d).T).mean(axis=1)  # (gᵀuᵢ)²
    total = max(float(w @ np.abs(λ)), 1e-300)
    below = float(w @ np.maximum(-λ, 0.0))
    above = float(np.maximum(λ - 1.0, 0.0).sum())  # all of the largest are found, so no weights
    return below / total, above / total


def count_clipped(spectrum: Spectrum, estimator: Estimator) -> int:
    """Return how many of these eigenvalues the estimator replaces."""
    λ = spectrum.eigenvalues
    if estimator == "inverted":
        return int((λ >= LARGEST).sum())
    return int((λ < -ROUNDING * np.abs(λ).max()).sum())


def compute_trace(spectrum: Spectrum, scale: Doubles | None = None) -> float:
    """Return tr A from all d eigenpairs of A, or with `scale` from those of D A D."""
    if scale is None:
        return float(spectrum.eigenvalues.sum())
    return float(spectrum.eigenvalues @ np.square(spectrum.vectors / scale).sum(axis=1))


def find_percentile(t: float, typical: Sequence[float]) -> float:
    """Return the percentile of t; `typical` holds the percentiles 0, 1, ..., 100."""
    return float(np.interp(t, typical, np.linspace(0, 100, len(typical))))


def typicality_statistics(model: Model, z: Floats, sigma: float) -> Doubles:
    """Compute t of rows in model units, in process; (n, d) -> (n,)."""
    parts = []
    for rows in split_rows(len(z), CHUNK_VALUES // make_probes(z.shape[1]).size):
        parts.append(run_calls(model, _find_statistics(model, z[rows], sigma)))
    return np.concatenate(parts)


def _find_statistics(model: Model, z: Floats, sigma: float) -> Calls[Doubles]:
    level = model.noise_level(len(z), sigma)
    out = yield Call("moments", {"x": z, "v": repeat_probes(z), **level})
    trace = estimate_traces(out["products"])
    return compute_statistic(z, out["mean"], model.alpha(sigma), trace)


def compute_statistic(z: Floats, r: Floats, alpha: float, trace: Doubles) -> Doubles:
    """Return t = ‖z − r‖² − σ² tr J; (n,)."""
    return squared_distances(z, r) - alpha * trace


def compute_dimension(z: Floats, r: Floats, alpha: float, trace: Doubles) -> Doubles:
    """Return the local intrinsic dimension tr J + ‖r − z‖²/σ²; (n,)."""
    return trace + squared_distances(z, r) / alpha


def squared_distances(z: Floats, r: Floats) -> Doubles:
    """Return ‖z − r‖² of every row; (n,)."""
    difference = np.subtract(z, r, dtype=np.float64)
    squares: Doubles = np.vecdot(difference, difference)
    return squares


def split_rows(rows: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` rows, and of at least one."""
    step = max(1, size)
    return (slice(start, start + step) for start in range(0, rows, step))
