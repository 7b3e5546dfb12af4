"""One pass over all rows: range, mean, variance and the values that are no numbers.

Blocks are merged by Chan, Golub & LeVeque's rule, which keeps its digits where the sum of
squares minus the squared sum would lose them (a column of time stamps, say):

    δ = m_b − m_a,   m = m_a + δ n_b/n,   M2 = M2_a + M2_b + δ² n_a n_b/n
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data.source import BLOCK_VALUES, Index, Rows, Source, blocks

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    n: int
    mean: Float  # (d,)
    m2: Float  # (d,), the sum of squared deviations

    def merge(self, other: Moments) -> Moments:
        n = self.n + other.n
        if not other.n:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        return Moments(n, mean, self.m2 + other.m2 + delta**2 * (self.n * other.n / n))

    @property
    def std(self) -> Float:
        return np.sqrt(self.m2 / self.n)


@dataclass(frozen=True)
class Statistics:
    minimum: Float  # (d,), over all rows
    maximum: Float
    moments: Moments  # over the training rows only
    bad: NDArray[np.int64]  # (d,), values that are NaN or infinite
    bad_row: int | None  # the first row with one


def statistics(source: Source, train: Index, values: int = BLOCK_VALUES) -> Statistics:
    chosen = np.zeros(source.rows, np.bool_)
    chosen[train] = True
    total = _empty(source.dims)
    with np.errstate(invalid="ignore", over="ignore"):  # bad values are counted, not warned of
        for start, block in blocks(source, values):
            total = _merge(total, _of(block, chosen[start : start + len(block)], start))
    return total


def _empty(dims: int) -> Statistics:
    zeros = np.zeros(dims)
    none = np.zeros(dims, np.int64)
    return Statistics(zeros + np.inf, zeros - np.inf, Moments(0, zeros, zeros), none, None)


def _of(block: Rows, chosen: NDArray[np.bool_], start: int) -> Statistics:
    bad, row = _bad(block)
    x = np.asarray(block if chosen.all() else block[chosen], np.float64)  # (n, d)
    own = moments(x) if len(x) else _empty(block.shape[1]).moments
    low, high = block.min(0).astype(np.float64), block.max(0).astype(np.float64)
    return Statistics(low, high, own, bad, None if row is None else start + row)


def moments(x: Float) -> Moments:
    mean = x.mean(0)
    away = x - mean
    return Moments(len(x), mean, np.einsum("ij,ij->j", away, away))


def _bad(block: Rows) -> tuple[NDArray[np.int64], int | None]:
    """A sum is finite only where all its parts are: a cheap look before the careful one."""
    nothing = np.zeros(block.shape[1], np.int64)
    if block.dtype.kind != "f" or np.isfinite(block.sum(dtype=np.float64)):
        return nothing, None
    bad = ~np.isfinite(block)
    rows = np.flatnonzero(bad.any(1))
    return bad.sum(0), int(rows[0]) if len(rows) else None


def _merge(a: Statistics, b: Statistics) -> Statistics:
    return Statistics(
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
        a.moments.merge(b.moments),
        a.bad + b.bad,
        b.bad_row if a.bad_row is None else a.bad_row,
    )
