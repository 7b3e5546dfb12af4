"""The noise level for clean rows, how well they are reconstructed, and how typical they are.

A model that was trained on noisy rows x̃ = x + σε has seen no clean row at a large σ, and may answer
one with nonsense. For noisy rows E‖x − r(x̃)‖² = σ² tr J(x̃), the denoising error. A clean row tells
more than a noisy one, so its error must be smaller. The trace test at σ, over held-out rows:

    mean, 99th percentile and maximum of ‖x − r(x)‖²  ≤  those of ‖x − r(x + σε)‖²

The maximum finds the few rows that fail although the mean is fine. `moments_sigma` is the largest
level that passes, of LEVELS geometric ones over the trained range and the level of chains itself.
Levels above that of chains are not tried: they only blur.

Typicality is the percentile of t(x) = ‖x − r‖² − σ² tr J (localmoments.trust) among these rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.artefact import PERCENTILES
from localmoments.model import Model
from localmoments.noise import normals
from localmoments.trust import split_rows, squared_distances, typicality_statistics
from trainer.data.split import spread

LEVELS = 9
BATCH = 1_000
TYPICAL_ROWS = 2_000  # whose percentiles are taken

Reconstruct = Callable[[Floats, float], Floats]  # rows (n, d) and σ -> r


def find_clean_level(model: Model, rows: Floats) -> float:
    """The largest level at which clean rows pass the trace test; the smallest if none does.

    A model of one level has no choice.

    Args:
        rows: held-out rows in the model's units; (n, d).
    """
    m = model.manifest
    if m.noise_levels is None:
        return m.sigma

    def reconstruct(z: Floats, sigma: float) -> Floats:
        return model.run("reconstruct", x=z, **model.noise_level(len(z), sigma))["mean"]

    return largest_passing_level(reconstruct, rows, levels_between(*m.noise_levels, m.sigma))


def with_clean_level(model: Model, rows: Floats) -> Model:
    """The model with `moments_sigma` and `typical` measured on held-out rows (n, d), in the model's
    units."""
    sigma = find_clean_level(model, rows)
    typical = typical_quantiles(model, rows, sigma)
    return model.with_manifest(replace(model.manifest, moments_sigma=sigma, typical=typical))


def levels_between(low: float, high: float, sigma: float) -> list[float]:
    """Levels to try, ascending: from `low` to the chains' level `sigma`, both included."""
    grid = [float(s) for s in np.geomspace(low, high, LEVELS)]
    return sorted({low, sigma, *(s for s in grid if low < s < sigma)})


def largest_passing_level(reconstruct: Reconstruct, rows: Floats, levels: Sequence[float]) -> float:
    """The largest of the ascending levels that passes the trace test; the first if none does."""
    for sigma in reversed(levels):
        if passes_trace_test(*squared_errors(reconstruct, rows, sigma)):
            return sigma
    return levels[0]


def squared_errors(reconstruct: Reconstruct, rows: Floats, sigma: float) -> tuple[Doubles, Doubles]:
    """‖x − r(x)‖² and ‖x − r(x + σε)‖² of every row; (n,), (n,)."""
    noise = np.float32(sigma) * normals(0, 0, rows.shape)
    clean, noisy = [], []
    for part in split_rows(len(rows), BATCH):
        x = rows[part]
        clean.append(squared_distances(x, reconstruct(x, sigma)))
        noisy.append(squared_distances(x, reconstruct(x + noise[part], sigma)))
    return np.concatenate(clean), np.concatenate(noisy)


def passes_trace_test(clean: Doubles, noisy: Doubles) -> bool:
    """Whether clean rows err no more than noisy ones: on average, among the worst 1 %, and at
    worst; squared errors (n,) each."""
    statistics: tuple[Callable[[Doubles], float], ...] = (
        lambda e: float(e.mean()),
        lambda e: float(np.quantile(e, 0.99)),
        lambda e: float(e.max()),
    )
    return all(statistic(clean) <= statistic(noisy) for statistic in statistics)


def typical_quantiles(model: Model, rows: Floats, sigma: float) -> tuple[float, ...]:
    """Percentiles 0 to 100 of t at σ, over at most TYPICAL_ROWS evenly spaced rows of (n, d)."""
    some = spread(np.arange(len(rows)), TYPICAL_ROWS)
    t = typicality_statistics(model, rows[some], sigma)
    return tuple(np.quantile(t, np.linspace(0, 1, PERCENTILES)).tolist())


def reconstruction_figures(model: Model, x: Doubles) -> dict[str, float]:
    """Root mean squares of r(x) - x and r(x + σε) - x, and of the noise itself.

    σ is the level for clean rows. Errors are in standard deviations of the data.

    Args:
        x: held-out rows in the user's units; (n, d).
    """
    z, sigma = model.manifest.normaliser.to_model(x), model.manifest.moments_sigma
    noisy = z + np.float32(sigma) * normals(0, 0, z.shape)
    level = model.noise_level(len(z), sigma)
    r = model.run("reconstruct", x=z, **level)["mean"]
    denoised = model.run("reconstruct", x=noisy, **level)["mean"]
    spread = float(z.std(axis=0).mean()) or 1.0
    return {
        "reconstruction": _root_mean_square(r - z) / spread,
        "denoising": _root_mean_square(denoised - z) / spread,
        "noise": _root_mean_square(noisy - z) / spread,
    }


def _root_mean_square(x: Floats) -> float:
    return float(np.sqrt(np.square(x, dtype=np.float64).mean()))
