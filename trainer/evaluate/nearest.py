"""Squared distances between many rows, a block at a time: ‖a - b‖² = ‖a‖² + ‖b‖² - 2 a·b."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Floats

BLOCK = 2**22  # distances at a time: 16 MB


def squared_distances(a: Floats, b: Floats) -> Iterator[tuple[slice, Floats]]:
    """(rows of a, their distances to all of b) block by block, (k, m) each.

    Both are moved by the mean of b first, which the distances do not feel but their rounding does.
    """
    c = b.mean(axis=0)
    a, b = a - c, b - c
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
    """For each row of a the indices of its nearest rows of b, nearest first, and the distances.

    Both (n, count). The distances of those few are measured again, without the rounding of sums.
    """
    count = min(count, len(b))
    index = np.empty((len(a), count), np.int64)
    distance = np.empty((len(a), count), np.float32)
    for part, d in squared_distances(a, b):
        some = np.argpartition(d, count - 1, axis=1)[:, :count] if count < len(b) else (
            np.broadcast_to(np.arange(count), d.shape))  # fmt: skip
        exact = np.linalg.norm(a[part, None] - b[some], axis=2)  # (k, count)
        order = np.argsort(exact, axis=1, kind="stable")
        index[part] = np.take_along_axis(some, order, axis=1)
        distance[part] = np.take_along_axis(exact, order, axis=1)
    return index, distance
