"""How well chains forget where they were, read from a few scalar functions of what they emit.

Split R-hat compares chains with each other and with themselves later on (1: no difference); the
effective sample size says how many independent draws the steps are worth, for the middle (bulk)
and for the 5 % and 95 % quantiles (tail). Both are ArviZ's, rank-normalised (Vehtari et al., 2021).

The burn-in compares the walkers at each step with the pooled end of the run (the last third of the
steps kept), by the kernel distance of their features. Pairs of the same walker are left out of all
sums: walkers are independent of each other, so at equilibrium the distance is 0 on average, however
slowly a walker moves. How far chance takes it from 0 is read from the end itself: the walkers are
parted at random into halves, many times, and one half's end steps are compared with the end of the
other half. Half as many walkers scatter about twice as far as all of them, so the most that halves
exceed the distance of all walkers is seldom exceeded at equilibrium, and that is the limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from trainer.evaluate.distances import kernel_blocks
from trainer.evaluate.features import Principal

COMPONENTS = 3
HALVINGS = 100  # random halves of the walkers that set the limit


@dataclass(frozen=True)
class Scalars:
    """The first principal components of the data, and the squared distance from its mean."""

    principal: Principal

    @property
    def names(self) -> tuple[str, ...]:
        k = min(COMPONENTS, len(self.principal.axes))
        return (*(f"component {i + 1}" for i in range(k)), "squared norm")

    def __call__(self, x: Floats) -> Doubles:
        """(W, d) -> (W, f)"""
        away = x - self.principal.mean
        first = away @ self.principal.axes[:COMPONENTS].T  # (W, k)
        norm = np.square(away, dtype=np.float64).sum(1, keepdims=True)
        return np.concatenate([first, norm], axis=1)


def mixing(traces: Doubles, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """traces (T, W, f): every step of every chain. A chain that stands still has no figures."""
    chains = np.moveaxis(traces, 2, 0).swapaxes(1, 2)  # (f, W, T)
    figures: dict[str, dict[str, float]] = {}
    for name, chain in zip(names, chains, strict=True):
        if (chain.std(axis=1) > 0).all():
            figures[name] = {
                "split R-hat": float(array_stats.rhat(chain)),
                "bulk ESS": float(array_stats.ess(chain, method="bulk")),
                "tail ESS": float(array_stats.ess(chain, method="tail", prob=(0.05, 0.95))),
            }
    return figures


def autocorrelation(traces: Doubles, lags: int) -> Doubles:
    """ρ(lag) of each function, around the mean of all chains: a chain that stays in its own corner
    then shows as a curve that does not fall; (lags + 1, f)."""
    away = traces - traces.mean(axis=(0, 1))
    lags = min(lags, len(away) - 1)
    variance = np.square(away).mean(axis=(0, 1))
    products = [(away[: len(away) - k] * away[k:]).mean(axis=(0, 1)) for k in range(lags + 1)]
    return np.stack(products) / np.where(variance > 0, variance, 1.0)


@dataclass(frozen=True)
class BurnIn:
    """How far the walkers are from the end of the run, step by step."""

    steps: tuple[int, ...]
    distances: Doubles  # (T,), kernel distance to the pooled end
    limit: float  # what chance explains
    end: int  # the first index of the end

    @property
    def settled(self) -> int | None:
        """The first step from which no distance exceeds the limit; None where that is in the end
        itself, so that there is no end to compare with."""
        above = np.flatnonzero(self.distances > self.limit)
        first = int(above[-1]) + 1 if len(above) else 0
        return self.steps[first] if first <= self.end else None


def burn_in(steps: Sequence[int], features: Floats, seed: int = 0) -> BurnIn:
    """features (T, W, f): of W independent walkers at the steps that were kept, in units in which
    the real rows' root mean square is about 1."""
    T, W, _ = features.shape
    end = T - max(2, T // 3)
    halves = _halves(W, seed)  # (J, W)
    to_end = [_kernel_with_end(x, features[end:]) for x in features]  # T × (W, W)
    pool = np.sum(to_end[end:], axis=0)  # over all pairs of end steps
    distances, chance = np.empty(T), []
    for t, x in enumerate(features):
        own = _kernel(x, x)
        # A step of the end is compared with the other steps of the end.
        inside = t >= end
        E = T - end - inside
        cross = (to_end[t] - own * inside) / E
        within = (pool - inside * (to_end[t] + to_end[t].T - own)) / E**2
        distances[t] = _distance(own, within, cross)
        if inside:
            # Less the distance of all walkers: an end that still moves is no chance.
            some = [_distance_of_halves(own, within, cross, half) for half in halves]
            chance += [value - distances[t] for value in some]
    return BurnIn(tuple(steps), distances, float(max(chance)), end)


def _halves(walkers: int, seed: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng(seed)
    half = np.arange(walkers) < walkers // 2
    return np.stack([rng.permutation(half) for _ in range(HALVINGS)])


def _kernel(u: Floats, v: Floats) -> Doubles:
    return np.concatenate([K for _, K in kernel_blocks(u, v)])


def _kernel_with_end(x: Floats, end: Floats) -> Doubles:
    """Σ_s k(x_w, end_sv) over the steps of the end; (W, W)."""
    total: Doubles = np.sum([_kernel(x, y) for y in end], axis=0)
    return total


def _distance(own: Doubles, within: Doubles, cross: Doubles) -> float:
    """Means over pairs of different walkers."""
    n = len(own)
    K = own + within - 2 * cross
    return float((K.sum() - np.trace(K)) / max(1, n * (n - 1)))


def _distance_of_halves(
    own: Doubles, within: Doubles, cross: Doubles, half: NDArray[np.bool_]
) -> float:
    """One half of the walkers at a step, the other half at the end."""
    a, b = np.flatnonzero(half), np.flatnonzero(~half)
    x, y = own[np.ix_(a, a)], within[np.ix_(b, b)]
    mean_x, mean_y = ((m.sum() - np.trace(m)) / max(1, len(m) * (len(m) - 1)) for m in (x, y))
    return float(mean_x + mean_y - 2 * cross[np.ix_(a, b)].mean())
