"""How fast chains mix, measured on a few scalar functions of what they emit.

**Split R-hat** compares chains with each other and the first half of a chain with its second half;
1 means no difference. The **effective sample size** is the number of independent draws that the
steps are worth, for the middle (bulk) and for the 5 % and 95 % quantiles (tail). Both come from
ArviZ and are rank-normalised (Vehtari et al., 2021).

**Burn-in.** D(t) is the kernel distance between the features of the walkers at step t and those of
the same walkers over the last third of the kept steps, the end. Pairs of the same walker are left
out of every sum. Walkers are independent, so at equilibrium D is 0 on average, however slowly a
walker moves.

    settled = the first step from which on D(t) ≤ limit
    limit   = max over t and halvings of D(half of the walkers at t, other half at the end) - D(t)

The maximum is over all steps t of the end, and over random halvings of the walkers. The limit is
what chance explains: half as many walkers scatter about twice as far as all of them, so D seldom
exceeds the limit at equilibrium.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from arviz_stats.base.array import array_stats
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from trainer.evaluate.features import Principal
from trainer.evaluate.sample_metrics import kernel_blocks

COMPONENTS = 3
HALVINGS = 100  # random halvings of the walkers that set the limit


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


def measure_mixing(traces: Doubles, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """R-hat and effective sample sizes of f functions at every step of every chain.

    A function that does not vary in some chain has no figures.

    Args:
        traces: (T, W, f).
        names: (f,).
    """
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
    """ρ(lag) of each function of traces (T, W, f); (lags + 1, f).

    Deviations are from the mean of all chains, so that chains which stay apart show as a curve that
    does not fall.
    """
    away = traces - traces.mean(axis=(0, 1))
    lags = min(lags, len(away) - 1)
    variance = np.square(away).mean(axis=(0, 1))
    products = [(away[: len(away) - k] * away[k:]).mean(axis=(0, 1)) for k in range(lags + 1)]
    return np.stack(products) / np.where(variance > 0, variance, 1.0)


@dataclass(frozen=True)
class BurnIn:
    """The distance of the walkers from the end of the run, step by step."""

    steps: tuple[int, ...]
    distances: Doubles  # (T,), kernel distance to the pooled end
    limit: float  # what chance explains
    end: int  # the first index of the end

    @property
    def settled(self) -> int | None:
        """The first step from which on no distance exceeds the limit.

        None if that step lies within the end: then the end is not at equilibrium either, and there
        is nothing to compare with.
        """
        above = np.flatnonzero(self.distances > self.limit)
        first = int(above[-1]) + 1 if len(above) else 0
        return self.steps[first] if first <= self.end else None


def burn_in(steps: Sequence[int], features: Floats, seed: int = 0) -> BurnIn:
    """Find the burn-in of W independent walkers that started at step 0.

    Args:
        steps: the T kept steps.
        features: (T, W, f), in units in which the real rows' root mean square is about 1.
    """
    T, W, _ = features.shape
    end = T - max(2, T // 3)
    halves = _halves(W, seed)  # (J, W)
    to_end = [_kernel_with_end(x, features[end:]) for x in features]  # T × (W, W)
    pool = np.sum(to_end[end:], axis=0)  # over all pairs of end steps
    distances, chance = np.empty(T), []
    for t, x in enumerate(features):
        at_step = _kernel(x, x)
        # A step within the end is compared with the other steps of the end.
        inside = t >= end
        E = T - end - inside
        cross = (to_end[t] - at_step * inside) / E
        within = (pool - inside * (to_end[t] + to_end[t].T - at_step)) / E**2
        distances[t] = _distance(at_step, within, cross)
        if inside:
            # Subtract the distance of all walkers: if the end still moves, that is not chance.
            some = [_distance_of_halves(at_step, within, cross, half) for half in halves]
            chance += [value - distances[t] for value in some]
    return BurnIn(tuple(steps), distances, float(max(chance)), end)


def _halves(walkers: int, seed: int) -> NDArray[np.bool_]:
    """Random halves of the walkers; (HALVINGS, W)."""
    rng = np.random.default_rng(seed)
    half = np.arange(walkers) < walkers // 2
    return np.stack([rng.permutation(half) for _ in range(HALVINGS)])


def _kernel(u: Floats, v: Floats) -> Doubles:
    """k(uᵢ, vⱼ); (W, W)."""
    return np.concatenate([K for _, K in kernel_blocks(u, v)])


def _kernel_with_end(x: Floats, end: Floats) -> Doubles:
    """Σ_s k(x_w, end_sv) over the steps of the end; (W, W)."""
    total: Doubles = np.sum([_kernel(x, y) for y in end], axis=0)
    return total


def _distance(at_step: Doubles, within: Doubles, cross: Doubles) -> float:
    """Kernel distance from kernels between walkers at a step, within the end, and between both.

    Each is (W, W); the means are over pairs of different walkers.
    """
    n = len(at_step)
    K = at_step + within - 2 * cross
    return float((K.sum() - np.trace(K)) / max(1, n * (n - 1)))


def _distance_of_halves(
    at_step: Doubles, within: Doubles, cross: Doubles, half: NDArray[np.bool_]
) -> float:
    """Kernel distance between one half of the walkers at a step and the other half at the end."""
    a, b = np.flatnonzero(half), np.flatnonzero(~half)
    x, y = at_step[np.ix_(a, a)], within[np.ix_(b, b)]
    mean_x, mean_y = ((m.sum() - np.trace(m)) / max(1, len(m) * (len(m) - 1)) for m in (x, y))
    return float(mean_x + mean_y - 2 * cross[np.ix_(a, b)].mean())
