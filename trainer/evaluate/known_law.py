"""For data of known law: samples against exact draws, beside exact draws against each other.

The ratio of the two distances is 1 for samples of the right law, whatever the number of rows; it
grows with the error, and with the number of rows that make a small error visible.
"""

import numpy as np

from localmoments.arrays import Doubles
from localmoments.columns import Normaliser
from trainer.data import KnownLaw
from trainer.evaluate.distances import sliced_wasserstein

REPEATS = 5


def against_exact(
    samples: Doubles, truth: KnownLaw, units: Normaliser, seed: int = 1_000
) -> dict[str, float]:
    """Samples (n, d) in the user's units; distances are in `units`, means over REPEATS draws."""
    x = units.to_model(samples).astype(np.float64)
    n = len(x)
    ours, exact = [], []
    for k in range(REPEATS):
        rng = np.random.default_rng([seed, k])
        a, b = (units.to_model(truth.sample(n, rng)).astype(np.float64) for _ in range(2))
        ours.append((sliced_wasserstein(x, a, k), *_moment_errors(x, a)))
        exact.append((sliced_wasserstein(b, a, k), *_moment_errors(b, a)))
    d, mean, covariance = np.mean(ours, axis=0).tolist()
    d0, mean0, covariance0 = np.mean(exact, axis=0).tolist()
    return {
        "rows": n,
        "sliced Wasserstein": d,
        "sliced Wasserstein between exact sets": d0,
        "ratio": d / d0,
        "mean error": mean,
        "mean error between exact sets": mean0,
        "covariance error": covariance,
        "covariance error between exact sets": covariance0,
    }


def _moment_errors(x: Doubles, exact: Doubles) -> tuple[float, float]:
    """‖m - m'‖ / √tr C and ‖C - C'‖ / ‖C‖, C of the exact rows."""
    C, D = (np.atleast_2d(np.cov(part.T)) for part in (exact, x))
    away = float(np.linalg.norm(x.mean(0) - exact.mean(0)) / np.sqrt(np.trace(C)))
    return away, float(np.linalg.norm(D - C) / np.linalg.norm(C))
