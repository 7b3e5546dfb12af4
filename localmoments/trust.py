"""Whether local moments can be trusted: what a posterior mean must satisfy, and J does not have to.

For the posterior mean r of any density, J = ∂r/∂x is symmetric and σ² J is a covariance: no
eigenvalue is negative. On data along a manifold no eigenvalue exceeds 1 either. A trained network
is not held to this, least of all away from the data.

    asymmetry         ‖J − Jᵀ‖ / ‖J + Jᵀ‖, Frobenius norms; 0 for a posterior mean, 1 for random J
    mass_below_zero   Σ max(−λ, 0) / Σ |λ|, over the eigenvalues λ of A = (J + Jᵀ)/2
    mass_above_one    Σ max(λ − 1, 0) / Σ |λ|
    clipped           eigenvalues that the estimator replaced: negative ones for `asymptotic`,
                      those of at least LARGEST for `inverted`
    typicality        percentile of t(x) = ‖x − r‖² − σ² tr J among clean held-out rows

Sums over all eigenvalues come from all of them, or from a Krylov space by Gauss quadrature:
tr f(A) ≈ mean over g of Σᵢ f(θᵢ) (gᵀuᵢ)², for the random g ~ N(0, I) that the space began with and
its Ritz pairs (θᵢ, uᵢ). Norms and traces come from all unit vectors, or by Hutchinson's estimator
from fixed probes v of ±1: tr J ≈ mean vᵀJ v, ‖B‖² ≈ mean ‖B v‖².
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.estimators import FULL_JACOBIAN_DIMS, LARGEST, Estimator
from localmoments.model import Model
from localmoments.spectrum import Spectrum, start_vectors

PROBES = 32  # vectors of ±1 that stand for all unit vectors in more than FULL_JACOBIAN_DIMS columns
ROUNDING = 1e-6  # of the largest eigenvalue: a negative one closer to 0 is float32's

# Held-out rows of the shipped models stay below 0.55, 0.20 and 0.06.
MOST_ASYMMETRY = 0.7
MOST_BELOW_ZERO = 0.25
MOST_ABOVE_ONE = 0.1
LEAST_TYPICAL, MOST_TYPICAL = 0.5, 99.5  # percentiles


@dataclass(frozen=True)
class Trust:
    """Indicators at one point; None where one was not computed."""

    asymmetry: float | None
    mass_below_zero: float | None
    mass_above_one: float | None
    clipped: int
    shrunk: int
    typicality: float | None
    exact: bool  # all eigenvalues and unit vectors were used; else the figures are estimates

    @property
    def warnings(self) -> list[str]:
        """A sentence for every value that is out of range."""
        said = []
        if self.asymmetry is not None and self.asymmetry > MOST_ASYMMETRY:
            said.append(
                f"J is far from symmetric: asymmetry {self.asymmetry:.3g} exceeds "
                f"{MOST_ASYMMETRY:g}, so r is not a posterior mean here."
            )
        if self.mass_below_zero is not None and self.mass_below_zero > MOST_BELOW_ZERO:
            said.append(
                f"{self.mass_below_zero:.0%} of the eigenvalue mass is negative and was set to 0: "
                "the covariance is unreliable here."
            )
        if self.mass_above_one is not None and self.mass_above_one > MOST_ABOVE_ONE:
            said.append(
                f"{self.mass_above_one:.0%} of the eigenvalue mass exceeds 1: the point lies "
                "between clusters or away from the data."
            )
        if self.shrunk:
            said.append(
                f"The inverse was bounded by the data's own spread in {self.shrunk} directions: "
                "mean and eigenvalues there are bounds, not estimates."
            )
        if self.typicality is not None and self.typicality >= MOST_TYPICAL:
            said.append(
                f"The model moves this point further than {self.typicality:.4g}% of held-out rows: "
                "it is not like the data."
            )
        if self.typicality is not None and self.typicality <= LEAST_TYPICAL:
            said.append(
                f"The model moves this point less than {100 - self.typicality:.4g}% of held-out "
                "rows: it is not like the data."
            )
        return said

    def as_dict(self) -> dict[str, object]:
        """What was computed, and the warnings."""
        return {k: v for k, v in vars(self).items() if v is not None} | {"warnings": self.warnings}


@lru_cache(maxsize=16)
def probes(dims: int) -> Floats:
    """The same vectors every time: all unit vectors, or PROBES rows of ±1; (k, d)."""
    if dims <= FULL_JACOBIAN_DIMS:
        return np.eye(dims, dtype=np.float32)
    signs = np.random.default_rng(0).integers(0, 2, (PROBES, dims))
    return (2 * signs - 1).astype(np.float32)


def traces(products: NDArray[np.floating]) -> Doubles:
    """tr J of every point, from its products with the probes; (n, k, d) -> (n,)."""
    d = products.shape[2]
    v = probes(d)
    along = np.einsum("nkd,kd->nk", products, v, dtype=np.float64)
    trace: Doubles = along.sum(axis=1) * (d / np.square(v).sum(dtype=np.float64))
    return trace


def asymmetries(jvp: NDArray[np.floating], vjp: NDArray[np.floating]) -> Doubles:
    """‖J − Jᵀ‖ / ‖J + Jᵀ‖ of every point, from J v and Jᵀ v of the probes; (n, k, d) -> (n,)."""
    apart = np.square(jvp - vjp, dtype=np.float64).sum(axis=(1, 2))
    together = np.square(jvp + vjp, dtype=np.float64).sum(axis=(1, 2))
    ratio: Doubles = np.sqrt(apart / np.maximum(together, 1e-300))
    return ratio


def masses(spectrum: Spectrum) -> tuple[float, float]:
    """Shares of Σ |λ| below 0 and above 1."""
    λ, U = spectrum.eigenvalues, spectrum.vectors
    k, d = U.shape
    w = np.ones(k)
    if k < d:
        w = np.square(U @ start_vectors(d).T).mean(axis=1)  # (gᵀuᵢ)²
    whole = max(float(w @ np.abs(λ)), 1e-300)
    below = float(w @ np.maximum(-λ, 0.0))
    above = float(np.maximum(λ - 1.0, 0.0).sum())  # the largest are all found, each of them once
    return below / whole, above / whole


def clipped(spectrum: Spectrum, estimator: Estimator) -> int:
    """How many of the eigenvalues that were found the estimator replaces."""
    λ = spectrum.eigenvalues
    if estimator == "inverted":
        return int((λ >= LARGEST).sum())
    return int((λ < -ROUNDING * np.abs(λ).max()).sum())


def trace_of(spectrum: Spectrum, scale: Doubles | None = None) -> float:
    """tr A from all d eigenpairs of A, or with `scale` of D A D."""
    if scale is None:
        return float(spectrum.eigenvalues.sum())
    return float(spectrum.eigenvalues @ np.square(spectrum.vectors / scale).sum(axis=1))


def percentile(t: float, typical: Sequence[float]) -> float:
    """Where t stands among held-out rows; `typical` holds their percentiles 0, 1, ..., 100."""
    return float(np.interp(t, typical, np.linspace(0, 100, len(typical))))


CHUNK_VALUES = 2**20  # numbers in the vectors of one graph call


def typicality_statistic(model: Model, z: Floats, sigma: float) -> Doubles:
    """t of rows in the model's units; (n, d) -> (n,)."""
    found = []
    for rows in chunks(len(z), CHUNK_VALUES // probes(z.shape[1]).size):
        level = model.noise_level(len(z[rows]), sigma)
        out = model.run("moments", x=z[rows], v=_repeated(z[rows]), **level)
        found.append(statistic(z[rows], out["mean"], model.alpha(sigma), traces(out["products"])))
    return np.concatenate(found)


def statistic(z: Floats, r: Floats, alpha: float, trace: Doubles) -> Doubles:
    """‖z − r‖² − σ² tr J; (n,)."""
    return moved(z, r) - alpha * trace


def dimension(z: Floats, r: Floats, alpha: float, trace: Doubles) -> Doubles:
    """Local intrinsic dimension, tr J + ‖r − z‖²/σ²; (n,)."""
    return trace + moved(z, r) / alpha


def moved(z: Floats, r: Floats) -> Doubles:
    """‖z − r‖²; (n,)."""
    away = np.subtract(z, r, dtype=np.float64)
    squares: Doubles = np.vecdot(away, away)
    return squares


def chunks(rows: int, most: int) -> Iterator[slice]:
    step = max(1, most)
    return (slice(start, start + step) for start in range(0, rows, step))


def _repeated(z: Floats) -> Floats:
    """The probes for every row; (n, k, d)."""
    v = probes(z.shape[1])
    return np.ascontiguousarray(np.broadcast_to(v, (len(z), *v.shape)))
