"""Are samples copies of training rows? How far they are from the nearest one, beside held-out rows.

A model that learnt the law and not the rows gives samples that are about as far from the training
rows as new real rows are, and whose nearest row is hardly nearer than the second: a copy is much
nearer to its original than to anything else.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Floats
from trainer.evaluate.nearest import nearest

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
COPY = 1 / 3  # of the distance to the second nearest


@dataclass(frozen=True)
class Neighbours:
    index: NDArray[np.int64]  # (n,), the nearest training row
    distance: Floats  # (n,)
    second: Floats  # (n,)


def neighbours(rows: Floats, train: Floats) -> Neighbours:
    index, distance = nearest(rows, train, 2)
    return Neighbours(index[:, 0], distance[:, 0], distance[:, -1])


def memorising(samples: Neighbours, held_out: Neighbours) -> dict[str, Any]:
    """Quantiles of both distances; how many samples are nearer than nearly every held-out row; how
    many look like copies, beside how many held-out rows do."""
    low = np.quantile(held_out.distance, QUANTILES[0])
    return {
        "samples": _quantiles(samples.distance),
        "held-out rows": _quantiles(held_out.distance),
        "samples nearer than 99 % of held-out rows": float((samples.distance < low).mean()),
        "samples that look like copies": _copies(samples),
        "held-out rows that look like copies": _copies(held_out),
    }


def _quantiles(distance: Floats) -> dict[str, float]:
    values = np.quantile(distance.astype(np.float64), QUANTILES)
    return {f"{100 * q:g} %": float(v) for q, v in zip(QUANTILES, values, strict=True)}


def _copies(found: Neighbours) -> float:
    return float((found.distance < COPY * found.second).mean())
