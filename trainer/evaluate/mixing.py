"""How well chains forget where they were, read from a few scalar functions of what they emit.

Split R-hat compares chains with each other and with themselves later on (1: no difference); the
effective sample size says how many independent draws the steps are worth, for the middle (bulk)
and for the 5 % and 95 % quantiles (tail). Both are ArviZ's, rank-normalised (Vehtari et al., 2021).
"""

from dataclasses import dataclass

import numpy as np
from arviz_stats.base.array import array_stats

from service.core.types import Doubles, Floats
from trainer.evaluate.features import Principal

COMPONENTS = 3


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


def settled(steps: list[int], values: list[float]) -> int | None:
    """The first step from which a falling figure stays at its final level, None where it is still
    falling: the level is the median of the last third and a tenth, and twice its noise, which is
    read from differences, for these do not feel the fall."""
    last = np.asarray(values[-max(2, len(values) // 3) :])
    noise = np.diff(last).std() / np.sqrt(2)
    level = np.median(last) + 0.1 * abs(np.median(last)) + 2 * noise
    above = [i for i, value in enumerate(values) if value > level]
    first = above[-1] + 1 if above else 0
    return steps[first] if first <= len(values) - len(last) else None
