"""A figure and its error, by the delete-a-group jackknife.

Samples of one chain depend on each other, so the chain is the unit that is drawn. Chains are dealt
into G groups; with θ₍g₎ the figure without group g,

    variance = (G - 1)/G Σ_g (θ₍g₎ - mean of θ₍·₎)²

which for a mean over independent units is the usual squared standard error. The same is done for
the real rows, where each row is a unit of its own, and the two variances add up.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles

GROUPS = 20

Units = NDArray[np.int64]  # (m,): the chain that each sample is from


@dataclass(frozen=True)
class Estimate:
    value: float
    error: float  # one standard deviation


def deal_groups(units: Units, seed: int = 0) -> Units:
    """The group of each sample, 0 to at most GROUPS - 1; all samples of a unit share one; (m,).

    Example: `deal_groups(np.repeat(np.arange(500), 20))` gives 20 groups of 25 chains.
    """
    _, of = np.unique(units, return_inverse=True)
    count = int(of.max()) + 1
    dealt = np.random.default_rng(seed).permutation(count) % min(GROUPS, count)
    return np.asarray(dealt[of], np.int64)


def one_hot(groups: Units, count: int) -> Doubles:
    """(m, count), to sum over groups by a product."""
    return np.asarray(groups[:, None] == np.arange(count), np.float64)


def jackknife_variance(without: Doubles) -> float:
    """`without` (G,): the figure without each group. 0 where there is one group or none."""
    g = len(without)
    return float((g - 1) * without.var()) if g > 1 else 0.0


def combine(value: float, *leave_outs: Doubles, more: Iterable[float] = ()) -> Estimate:
    """A figure from its leave-outs over samples and over real rows; `more` are other variances."""
    return Estimate(value, float(np.sqrt(sum(map(jackknife_variance, leave_outs), sum(more)))))
