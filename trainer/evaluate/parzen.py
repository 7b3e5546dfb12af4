"""Log-likelihood of held-out rows under a window on every sample, as the field publishes it.

    log p(x) = log 1/m Σ_j exp(-‖x - s_j‖² / 2h²) - d/2 log 2πh²

The bandwidth h is the one, of a grid of hundredths, that gives validation rows the highest mean;
the figure is the mean over the test rows with its standard error. Distances are float32 products,
the sum over samples is taken in float64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.core.types import Doubles, Floats
from trainer.evaluate.nearest import squared_distances

STEP = 0.01
COARSE, MOST = 5, 100  # steps between the first guesses, and the widest window in steps


@dataclass(frozen=True)
class Parzen:
    mean: float  # nats a row
    error: float  # standard error of the mean
    bandwidth: float
    curve: Mapping[float, float] = field(default_factory=dict)  # bandwidth -> validation mean


def log_likelihoods(x: Floats, samples: Floats, bandwidths: Sequence[float]) -> Doubles:
    """log p of each row x (n, d) at each bandwidth; (H, n)."""
    m, d = samples.shape
    h2 = np.square(np.asarray(bandwidths, np.float64))  # (H,)
    out = np.empty((len(h2), len(x)))
    for part, distances in squared_distances(x, samples):
        low = distances.min(axis=1, keepdims=True)
        beyond = (low - distances).astype(np.float64)  # (k, m), 0 for the nearest sample
        for i, v in enumerate(h2):
            out[i, part] = np.log(np.exp(beyond / (2 * v)).sum(1)) - low[:, 0] / (2 * v)
    normaliser: Doubles = np.log(m) + d / 2 * np.log(2 * np.pi * h2)
    return out - normaliser[:, None]


def bandwidth_curve(validation: Floats, samples: Floats) -> dict[float, float]:
    """Mean log-likelihood of validation rows over bandwidths: first far apart, then each hundredth
    around the best, further out where the best is at the edge."""
    curve: dict[float, float] = {}

    def score(steps: Sequence[int]) -> None:
        new = [round(k * STEP, 10) for k in steps if round(k * STEP, 10) not in curve]
        if new:
            means = log_likelihoods(validation, samples, new).mean(axis=1)
            curve.update(zip(new, means.tolist(), strict=True))

    score(range(COARSE, MOST // 2 + 1, COARSE))
    if _best(curve) == MOST // 2:
        score(range(MOST // 2, MOST + 1, COARSE))
    best = _best(curve)
    score(range(max(1, best - COARSE + 1), min(MOST, best + COARSE - 1) + 1))
    return dict(sorted(curve.items()))


def _best(curve: Mapping[float, float]) -> int:
    """In steps."""
    return round(max(curve, key=lambda h: curve[h]) / STEP)


def parzen(test: Floats, validation: Floats, samples: Floats) -> Parzen:
    """All in the same units; for images, pixels in [0, 1]."""
    curve = bandwidth_curve(validation, samples)
    h = max(curve, key=lambda k: curve[k])
    each = log_likelihoods(test, samples, [h])[0]  # (n,)
    error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0
    return Parzen(float(each.mean()), error, h, curve)
