"""Kernel distance (Bińkowski et al., 2018): unbiased squared MMD with k(u, v) = (u·v/f + 1)³.

    1/n(n-1) Σ_{i≠j} k(x_i, x_j) + 1/m(m-1) Σ_{i≠j} k(y_i, y_j) - 2/nm Σ_{ij} k(x_i, y_j)

0 on average for two draws of one law, so a draw may fall below 0. The features are divided by the
mean norm of the real ones, which makes the figure independent of the units of the features.
"""

import numpy as np

from service.core.types import Doubles, Floats


def kernel_distance(real: Floats, samples: Floats) -> float:
    """Features of real rows (n, f) and of samples (m, f)."""
    unit = np.linalg.norm(real.astype(np.float64), axis=1).mean() or 1.0
    x, y = real / unit, samples / unit
    return _within(x) + _within(y) - 2 * float(_kernel(x, y).mean())


def _kernel(u: Doubles, v: Doubles) -> Doubles:
    K: Doubles = (u @ v.T / u.shape[1] + 1) ** 3
    return K


def _within(u: Doubles) -> float:
    """Mean over pairs of different rows."""
    n = len(u)
    K = _kernel(u, u)  # (n, n)
    return float((K.sum() - np.trace(K)) / (n * (n - 1)))
