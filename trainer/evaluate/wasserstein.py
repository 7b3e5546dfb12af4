"""Sliced Wasserstein distance: the mean over directions of W₁ between projections."""

import numpy as np

from service.core.types import Doubles

PROJECTIONS = 200


def sliced_wasserstein(a: Doubles, b: Doubles, seed: int = 0) -> float:
    """Mean over random directions of the distance between sorted projections (W₁)."""
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((a.shape[1], PROJECTIONS))
    v /= np.linalg.norm(v, axis=0)
    quantiles = (np.arange(n := max(len(a), len(b))) + 0.5) / n
    qa, qb = (np.sort(x @ v, axis=0)[(quantiles * len(x)).astype(int)] for x in (a, b))  # (n, P)
    return float(np.abs(qa - qb).mean())
