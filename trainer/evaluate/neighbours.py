"""Nearest rows: exact search, copies of training rows, and a k-means baseline.

**Copies.** A model that learnt the law and not the rows gives samples that are about as far from
the training rows as new real rows are. A copy is much nearer to its original than to any other row.

**k-means.** The centres of k-means on the training rows, used as samples: a baseline that generates
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Floats

BLOCK = 2**22  # distances at a time: 16 MB
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
COPY = 1 / 3  # of the distance to the second nearest row
ROUNDS = 3  # of Lloyd's algorithm
ROWS_A_CENTRE = 5


def squared_distances(a: Floats, b: Floats) -> Iterator[tuple[slice, Floats]]:
    """‖aᵢ - bⱼ‖² = ‖aᵢ‖² + ‖bⱼ‖² - 2 aᵢ·bⱼ of rows a (n, d) and b (m, d), block by block.

    Yields some rows of a, as a slice, and their squared distances to all of b, (k, m).
    """
    c = b.mean(axis=0)
    a, b = a - c, b - c  # distances stay the same, and smaller numbers lose fewer digits
    aa, bb = (a * a).sum(1), (b * b).sum(1)  # (n,), (m,)
    step = max(1, BLOCK // len(b))
    for start in range(0, len(a), step):
        part = slice(start, min(start + step, len(a)))
        d = a[part] @ b.T  # (k, m)
        d *= -2
        d += bb
        d += aa[part, None]
        yield part, np.maximum(d, 0, out=d)


def nearest(a: Floats, b: Floats, count: int = 1) -> tuple[NDArray[np.int64], Floats]:
    """For each row of a, the indices of its `count` nearest rows of b, nearest first, and their
    distances; both (n, count)."""
    count = min(count, len(b))
    index = np.empty((len(a), count), np.int64)
    distance = np.empty((len(a), count), np.float32)
    for part, d in squared_distances(a, b):
        some = np.argpartition(d, count - 1, axis=1)[:, :count] if count < len(b) else (
            np.broadcast_to(np.arange(count), d.shape))  # fmt: skip
        # Measure these few again as differences: the expanded square has lost digits.
        exact = np.linalg.norm(a[part, None] - b[some], axis=2)  # (k, count)
        order = np.argsort(exact, axis=1, kind="stable")
        index[part] = np.take_along_axis(some, order, axis=1)
        distance[part] = np.take_along_axis(exact, order, axis=1)
    return index, distance


@dataclass(frozen=True)
class Neighbours:
    """The nearest training row of each of n rows."""

    index: NDArray[np.int64]  # (n,)
    distance: Floats  # (n,)
    second: Floats  # (n,), distance of the second nearest


def find_neighbours(rows: Floats, train: Floats) -> Neighbours:
    """rows (n, d), train (m, d)."""
    index, distance = nearest(rows, train, 2)
    return Neighbours(index[:, 0], distance[:, 0], distance[:, -1])


def copy_figures(samples: Neighbours, held_out: Neighbours) -> dict[str, Any]:
    """Compare the distances of samples to the training rows with those of held-out rows."""
    low = np.quantile(held_out.distance, QUANTILES[0])
    return {
        "samples": _distance_quantiles(samples.distance),
        "held-out rows": _distance_quantiles(held_out.distance),
        "samples nearer than 99 % of held-out rows": float((samples.distance < low).mean()),
        "samples that look like copies": _copy_share(samples),
        "held-out rows that look like copies": _copy_share(held_out),
    }


def _distance_quantiles(distance: Floats) -> dict[str, float]:
    values = np.quantile(distance.astype(np.float64), QUANTILES)
    return {f"{100 * q:g} %": float(v) for q, v in zip(QUANTILES, values, strict=True)}


def _copy_share(found: Neighbours) -> float:
    return float((found.distance < COPY * found.second).mean())


def k_means(rows: Floats, most: int, rounds: int = ROUNDS, seed: int = 0) -> Floats:
    """Run Lloyd's algorithm from random rows; return at most `most` centres (k, d).

    Written here rather than taken from a library, whose threads add up in another order each time:
    these figures must repeat.
    """
    k = min(most, max(1, len(rows) // ROWS_A_CENTRE))
    centres = rows[np.random.default_rng(seed).choice(len(rows), k, replace=False)].copy()
    for _ in range(rounds):
        closest = np.concatenate([d.argmin(axis=1) for _, d in squared_distances(rows, centres)])
        order = np.argsort(closest, kind="stable")
        taken, first = np.unique(closest[order], return_index=True)
        sums = np.add.reduceat(rows[order], first, axis=0)
        counts = np.diff(first, append=len(rows))
        centres[taken] = sums / counts[:, None]  # a centre without rows stays where it is
    return centres
