"""Is σ²J calibrated? Errors of restored rows against the covariance that the model claims.

For noisy rows x̃ = x + σε a denoising auto-encoder has r(x̃) = E[x | x̃] and σ²J(x̃) = Cov[x | x̃]
(Tweedie), so with e = x - r(x̃) and the eigenpairs (λᵢ, uᵢ) of A = (J + Jᵀ)/2

    E‖e‖² / E[σ² tr J] = 1        E[(uᵢᵀe)² / (σ²λᵢ)] = 1
"""

from dataclasses import dataclass

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.graph_calls import run_calls
from localmoments.model import Model
from localmoments.spectrum import Spectrum, full_spectrum, leading_spectra

RANK = 8  # leading tangents
PROBES = 8  # Hutchinson probes of a trace where d is large
SMALLEST = 1e-3  # eigenvalue whose direction is scored: below, float32 says nothing


@dataclass(frozen=True)
class Local:
    """What the model says at points: r, tr J, and leading eigenpairs of A."""

    x: Doubles  # (n, d)
    r: Doubles  # (n, d)
    traces: Doubles  # (n,)
    eigenvalues: list[Doubles]  # n of (k,)
    tangents: list[Doubles]  # n of (k, d)


def local_at(model: Model, z: Floats, points: int, sigma: float | None = None) -> Local:
    """r and tr J at z (n, d); eigenpairs at all points, or at the first ones where d is large."""
    n, d = z.shape

    def products(x: Floats, v: Doubles) -> tuple[Floats, Floats]:
        out = model.run("moments", x=x, v=v.astype(np.float32), **model.noise_level(len(x), sigma))
        return out["mean"], out["products"]

    r, traces = np.empty((n, d)), np.empty(n)
    found: list[Spectrum] = []
    whole = d <= FULL_JACOBIAN_DIMS
    for part in _slices(n, 64):
        x = z[part]
        if whole:
            v: Doubles = np.tile(np.eye(d), (len(x), 1, 1))
        else:  # vᵀAv of random signs v has the mean tr A
            rng = np.random.default_rng([0, part.start])
            v = rng.choice(np.array([-1.0, 1.0]), (len(x), PROBES, d))
        r[part], Av = products(x, v)
        traces[part] = (v * Av).sum((1, 2)) / (1 if whole else PROBES)
        if whole:
            found += [full_spectrum(A) for A in Av]
        elif part.start < points:
            some = x[: points - part.start]
            level = model.noise_level(len(some), sigma)
            found += run_calls(model, leading_spectra(some, level, RANK))
    found = [spectrum.truncate(RANK) for spectrum in found]
    return Local(z.astype(np.float64), r, traces, [s.eigenvalues for s in found],
                 [s.vectors for s in found])  # fmt: skip


def _slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def calibration(local: Local, x: Floats, sigma: float) -> dict[str, float]:
    """The trace ratio and z² along tangents, with standard errors; x (n, d) the clean rows."""
    e = x - local.r
    squares, traces = np.square(e).sum(1), sigma**2 * local.traces
    ratio = squares.mean() / traces.mean()
    error = (squares - ratio * traces).std() / traces.mean() / np.sqrt(len(x))
    z2 = [
        np.square(U @ e_)[λ > SMALLEST] / (sigma**2 * λ[λ > SMALLEST])
        for λ, U, e_ in zip(local.eigenvalues, local.tangents, e, strict=False)
    ]
    means = np.array([z.mean() for z in z2 if len(z)])
    return {
        "rows": len(x),
        "trace ratio": float(ratio),
        "trace ratio, error": float(error),
        "z² rows": len(means),
        "z²": float(means.mean()),
        "z², error": float(means.std() / np.sqrt(len(means))),
        "z², first tangent": float(np.mean([z[0] for z in z2 if len(z)])),
        "leading eigenvalue": float(np.median([λ[0] for λ in local.eigenvalues])),
    }
