"""Density and coverage (Naeem et al., 2020): are samples where real rows are, and everywhere there?

With B_i the ball around real row x_i that reaches to its k-th nearest real neighbour:

    density  = 1/(k m) Σ_j Σ_i 1[y_j ∈ B_i]         coverage = 1/n Σ_i 1[some y_j ∈ B_i]

New rows of the same law have density 1 and, for n = m, coverage about 1 - 2⁻ᵏ.
"""

import numpy as np

from service.core.types import Floats
from trainer.evaluate.nearest import nearest, squared_distances

NEIGHBOURS = 5


def density_and_coverage(real: Floats, samples: Floats, k: int = NEIGHBOURS) -> tuple[float, float]:
    """Features of real rows (n, f) and of samples (m, f)."""
    k = min(k, len(real) - 1)
    radius = nearest(real, real, k + 1)[1][:, k]  # (n,); the first neighbour is the row itself
    inside, covered = 0, 0
    for part, d in squared_distances(real, samples):
        within = d <= np.square(radius[part, None])  # (rows, m)
        inside += int(within.sum())
        covered += int(within.any(axis=1).sum())
    return inside / (k * len(samples)), covered / len(real)
