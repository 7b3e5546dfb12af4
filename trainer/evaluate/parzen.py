"""Log-likelihood of test rows under a Gaussian window on every sample (Parzen), as published.

    log p(x) = log 1/m Σ_j exp(-‖x - s_j‖² / 2h²) - d/2 log 2πh²

The bandwidth h is a multiple of 0.01: the one that gives validation rows the highest mean. The
figure is the mean over the test rows. Its variance is the squared standard error over the test rows
plus the delete-a-group jackknife over chains, because another run of the sampler would give other
windows. The sum over windows is a sum over groups of chains, so leaving one out is cheap. Distances
are float32 products; the sum over samples is taken in float64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from localmoments.arrays import Doubles, Floats
from trainer.evaluate.jackknife import Estimate, Units, deal_groups, jackknife_variance
from trainer.evaluate.neighbours import squared_distances

STEP = 0.01
COARSE, MOST = 5, 100  # first spacing of the search and the widest window, in steps of STEP


@dataclass(frozen=True)
class Parzen:
    """The log-likelihood and the bandwidth that it was measured with."""

    estimate: Estimate  # nats per row
    bandwidth: float
    curve: Mapping[float, float] = field(default_factory=dict)  # bandwidth -> validation mean


def log_likelihoods(x: Floats, samples: Floats, bandwidths: Sequence[float]) -> Doubles:
    """log p of each row x (n, d) at each bandwidth; (H, n)."""
    m, d = samples.shape
    h2 = np.square(np.asarray(bandwidths, np.float64))  # (H,)
    out = np.empty((len(h2), len(x)))
    for part, distances in squared_distances(x, samples):
        low = distances.min(axis=1, keepdims=True)  # taken out of the sum, or exp underflows
        beyond = (low - distances).astype(np.float64)  # (k, m), 0 for the nearest sample
        for i, v in enumerate(h2):
            out[i, part] = np.log(np.exp(beyond / (2 * v)).sum(1)) - low[:, 0] / (2 * v)
    normaliser: Doubles = np.log(m) + d / 2 * np.log(2 * np.pi * h2)
    return out - normaliser[:, None]


def leave_out_means(x: Floats, samples: Floats, groups: Units, h: float) -> tuple[Doubles, Doubles]:
    """log p of each row x (n, d), (n,); and its mean over rows without each group of samples, (G,).

    A group may hold nearly all of the sum at a row. Subtracting it would leave rounding error, so
    the other groups are added up instead.
    """
    order = np.argsort(groups, kind="stable")
    ordered, sizes = samples[order], np.bincount(groups)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    each, without = np.empty(len(x)), np.zeros(len(sizes))
    for part, distances in squared_distances(x, ordered):
        low = np.minimum.reduceat(distances, starts, axis=1)  # (k, G)
        beyond = (np.repeat(low, sizes, axis=1) - distances).astype(np.float64)
        np.exp(np.divide(beyond, 2 * h * h, out=beyond), out=beyond)
        logs = np.log(np.add.reduceat(beyond, starts, axis=1)) - low / (2 * h * h)  # (k, G)
        top = logs.max(axis=1, keepdims=True)
        each[part] = top[:, 0] + np.log(np.exp(logs - top).sum(1))
        for g in range(len(sizes)):
            rest = np.delete(logs, g, axis=1)
            if rest.size:
                top = rest.max(axis=1, keepdims=True)
                without[g] += (top[:, 0] + np.log(np.exp(rest - top).sum(1))).sum()
    constant = samples.shape[1] / 2 * np.log(2 * np.pi * h * h)
    rest_sizes = np.maximum(1, len(samples) - sizes)
    return (each - np.log(len(samples)) - constant,
            without / len(x) - np.log(rest_sizes) - constant)  # fmt: skip


def bandwidth_curve(validation: Floats, samples: Floats) -> dict[float, float]:
    """Mean log-likelihood of validation rows at each bandwidth tried.

    Bandwidths are tried COARSE steps apart, further out if the best is at the edge, and then at
    every step around the best.
    """
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
    """The best bandwidth, in steps."""
    return round(max(curve, key=lambda h: curve[h]) / STEP)


def estimate_parzen(
    test: Floats, validation: Floats, samples: Floats, chains: Units | None = None
) -> Parzen:
    """Choose the bandwidth and measure the log-likelihood, in nats per row.

    Args:
        test, validation, samples: rows in the same units; for images, pixels in [0, 1].
        chains: (m,), the chain of each sample; without it every sample is independent.
    """
    curve = bandwidth_curve(validation, samples)
    h = max(curve, key=lambda k: curve[k])
    groups = deal_groups(np.arange(len(samples)) if chains is None else chains)
    each, without = leave_out_means(test, samples, groups, h)
    over_rows = float(each.var(ddof=1) / len(each)) if len(each) > 1 else 0.0
    error = float(np.sqrt(over_rows + jackknife_variance(without)))
    return Parzen(Estimate(float(each.mean()), error), h, curve)
