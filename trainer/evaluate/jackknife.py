"""Standard errors by the delete-a-group jackknife.

Samples of one chain depend on each other, so the chain is the unit that is drawn at random. Chains
are dealt into G groups. With θ₍g₎ the figure without group g,

    variance = (G - 1)/G Σ_g (θ₍g₎ - mean of θ₍·₎)²

For a mean over independent units this is the usual squared standard error. The same is done for the
real rows, where each row is a unit of its own, and the two variances are added.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats

GROUPS = 20

Units = NDArray[np.int64]  # (m,), the chain of each sample


@dataclass(frozen=True)
class Estimate:
    value: float
    error: float  # one standard deviation


@dataclass(frozen=True)
class Parts:
    """A figure, and the same figure without each group."""

    value: float
    without_samples: Doubles  # (G,)
    without_real: Doubles  # (H,)


@dataclass(frozen=True)
class GroupedRows:
    """Rows with the chain of each row and the group of each chain."""

    x: Floats  # (n, f)
    units: Units  # (n,)
    groups: Units  # (n,)
    count: int  # of groups, including those without a row here

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: Units) -> "GroupedRows":
        """Some of the rows; groups keep their numbers."""
        return GroupedRows(self.x[index], self.units[index], self.groups[index], self.count)

    @property
    def sizes(self) -> Doubles:
        """Rows in each group; (G,)."""
        return np.bincount(self.groups, minlength=self.count).astype(np.float64)


def group_rows(x: Floats, units: Units | None = None) -> GroupedRows:
    """Deal rows x (n, f) into groups by chain; without `units` every row is a chain of its own."""
    units = np.arange(len(x)) if units is None else units
    groups = deal_groups(units)
    return GroupedRows(x, units, groups, int(groups.max()) + 1)


def one_group(x: Floats, units: Units | None = None) -> GroupedRows:
    """All rows x (n, f) in one group, for a figure without its error."""
    units = np.arange(len(x)) if units is None else units
    return GroupedRows(x, units, np.zeros(len(x), np.int64), 1)


def deal_groups(units: Units, seed: int = 0) -> Units:
    """The group of each sample, 0 to at most GROUPS - 1; all samples of a unit share one; (m,).

    Example:
        >>> groups = deal_groups(np.repeat(np.arange(500), 20))
        >>> len(np.unique(groups)), np.bincount(groups)[0] // 20
        (20, np.int64(25))
    """
    _, of = np.unique(units, return_inverse=True)
    count = int(of.max()) + 1
    dealt = np.random.default_rng(seed).permutation(count) % min(GROUPS, count)
    return np.asarray(dealt[of], np.int64)


def one_hot(groups: Units, count: int) -> Doubles:
    """(m, count), to sum over groups by a matrix product."""
    return np.asarray(groups[:, None] == np.arange(count), np.float64)


def jackknife_variance(without: Doubles) -> float:
    """The variance of a figure from its values without each group (G,); 0 for a single group."""
    g = len(without)
    return float((g - 1) * without.var()) if g > 1 else 0.0


def combine(value: float, *leave_outs: Doubles, more: Iterable[float] = ()) -> Estimate:
    """Add up the variances of several jackknives and any further ones."""
    return Estimate(value, float(np.sqrt(sum(map(jackknife_variance, leave_outs), sum(more)))))
