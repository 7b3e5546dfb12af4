"""The noise level for clean rows, and how typical held-out rows are.

A model that was trained on noisy rows x̃ = x + σε has seen no clean row at a large σ, and may answer
one with nonsense. For noisy rows E‖x − r(x̃)‖² = σ² tr J(x̃), the denoising error. A clean row tells
more than a noisy one, so its error must be smaller. The trace test at σ, over held-out rows:

    mean, 99th percentile and maximum of ‖x − r(x)‖²  ≤  those of ‖x − r(x + σε)‖²

The maximum finds the few rows that fail although the mean is fine. `moments_sigma` is the largest
level that passes, of LEVELS geometric ones over the trained range and the level of chains itself.
Larger levels than the chains' are not tried: they only blur.

Typicality is the percentile of t(x) = ‖x − r‖² − σ² tr J (localmoments.trust) among these rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.artefact import PERCENTILES, Manifest
from localmoments.model import Model
from localmoments.noise import normals
from localmoments.trust import split_rows, squared_distances, typicality_statistics

LEVELS = 9
BATCH = 1_000
TYPICAL_ROWS = 2_000  # of which percentiles are taken

Reconstruct = Callable[[Floats, float], Floats]  # rows (n, d) and σ -> r


def moments_sigma_for(model: Model, rows: Floats) -> float:
    """The largest level at which clean rows pass the trace test; the smallest if none does.

    `rows` (n, d) are held-out, in the model's units. A model of one level has no choice.
    """
    m = model.manifest
    if m.noise_levels is None:
        return m.sigma

    def reconstruct(z: Floats, sigma: float) -> Floats:
        return model.run("reconstruct", x=z, **model.noise_level(len(z), sigma))["mean"]

    return clean_level(reconstruct, rows, levels_of(m))


def with_clean_level(model: Model, rows: Floats) -> Model:
    """The model with `moments_sigma` and `typical` measured on held-out rows; (n, d)."""
    sigma = moments_sigma_for(model, rows)
    typical = typical_quantiles(model, rows, sigma)
    manifest = replace(model.manifest, moments_sigma=sigma, typical=typical)
    return Model(model.folder, manifest)


def levels_of(m: Manifest) -> list[float]:
    """Trained levels up to that of chains, ascending."""
    if m.noise_levels is None:
        return [m.sigma]
    return levels_between(*m.noise_levels, m.sigma)


def levels_between(low: float, high: float, sigma: float) -> list[float]:
    grid = [float(s) for s in np.geomspace(low, high, LEVELS)]
    return sorted({low, sigma, *(s for s in grid if low < s < sigma)})


def clean_level(reconstruct: Reconstruct, rows: Floats, levels: Sequence[float]) -> float:
    """The largest of the levels that passes; they ascend."""
    for sigma in reversed(levels):
        if passes_trace_test(*errors(reconstruct, rows, sigma)):
            return sigma
    return levels[0]


def errors(reconstruct: Reconstruct, rows: Floats, sigma: float) -> tuple[Doubles, Doubles]:
    """‖x − r(x)‖² and ‖x − r(x + σε)‖² of every row; (n,), (n,)."""
    noise = np.float32(sigma) * normals(0, 0, rows.shape)
    clean, noisy = [], []
    for part in split_rows(len(rows), BATCH):
        x = rows[part]
        clean.append(squared_distances(x, reconstruct(x, sigma)))
        noisy.append(squared_distances(x, reconstruct(x + noise[part], sigma)))
    return np.concatenate(clean), np.concatenate(noisy)


def passes_trace_test(clean: Doubles, noisy: Doubles) -> bool:
    """Clean rows err no more than noisy ones: on average, among the worst 1 %, and at worst."""
    statistics: tuple[Callable[[Doubles], float], ...] = (
        lambda e: float(e.mean()),
        lambda e: float(np.quantile(e, 0.99)),
        lambda e: float(e.max()),
    )
    return all(statistic(clean) <= statistic(noisy) for statistic in statistics)


def typical_quantiles(model: Model, rows: Floats, sigma: float) -> tuple[float, ...]:
    """Percentiles 0 to 100 of t at σ, of at most TYPICAL_ROWS rows spread over these; (n, d)."""
    n = min(TYPICAL_ROWS, len(rows))
    some = rows[np.arange(n) * len(rows) // n]
    t = typicality_statistics(model, some, sigma)
    return tuple(np.quantile(t, np.linspace(0, 1, PERCENTILES)).tolist())
