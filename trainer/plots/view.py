"""How rows of a data set are shown: as images, or in the plane in which they vary most."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data import Dataset, Split
from trainer.data.split import spread

Float = NDArray[np.float64]
NAME_LENGTH = 32  # of a column's name on an axis
ROWS = 1_000  # rows that choose the plane; a table may have thousands of columns
BACKGROUND_ROWS = 2_000


@dataclass(frozen=True)
class View:
    """What the plots need to know of the data."""

    image: tuple[int, ...] | None  # (H, W) or (H, W, C)
    features: tuple[str, ...] | None
    low: float  # black
    high: float  # white
    background: Float  # (n, d), some real rows

    def __post_init__(self) -> None:
        d = self.background.shape[1]
        if self.image is not None and (
            int(np.prod(self.image)) != d or self.image[2:] not in ((), (1,), (3,), (4,))
        ):
            raise ValueError(f"an image of shape {self.image} cannot be made of {d} values")

    @property
    def dims(self) -> int:
        return int(self.background.shape[1])

    def feature(self, index: int) -> str:
        """A column's name, cut to the length of an axis label."""
        name = self.features[index] if self.features is not None else f"column {index}"
        return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"


def view_of(dataset: Dataset, split: Split) -> View:
    """Show held-out rows in the background. Bytes keep the range 0 to 255, and values within [0, 1]
    that range; others are shown from their minimum to their maximum."""
    rows = dataset.source.take(spread(split.held_out, BACKGROUND_ROWS)).astype(np.float64)
    low, high = float(rows.min()), float(rows.max())
    if dataset.source.dtype == np.uint8:
        low, high = 0.0, 255.0
    elif low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return View(dataset.image, dataset.features, low, high, rows)


@dataclass(frozen=True)
class Plane:
    """Two orthonormal axes in the space of the columns, each column divided by its scale."""

    origin: Float  # (d,)
    scale: Float  # (d,)
    axes: Float  # (2, d)
    names: tuple[str, str]

    def points(self, x: Float) -> Float:
        """(..., d) -> (..., 2)"""
        return self.vectors(x - self.origin)

    def vectors(self, v: Float) -> Float:
        """Differences of points; (..., d) -> (..., 2)."""
        projected: Float = (v / self.scale) @ self.axes.T
        return projected


def plane_of(view: View) -> Plane:
    """The two columns themselves, or the first two principal axes of the standardised columns.

    Columns have units, and those with the largest numbers are not the most important ones.
    """
    x, d = view.background, view.dims
    if d == 2:
        return Plane(np.zeros(2), np.ones(2), np.eye(2), (view.feature(0), view.feature(1)))
    origin, spread = x.mean(0), x.std(0)
    scale = np.where(spread > 0, spread, 1.0)
    z = (x[:ROWS] - origin) / scale  # (n, d)
    padded = np.concatenate([z, np.zeros((2, d))])  # two axes, even of a single row
    _, s, Vt = np.linalg.svd(padded, full_matrices=False)  # (d, d) at most
    parts = 100 * s[:2] ** 2 / max((s**2).sum(), np.finfo(float).tiny)
    first, second = (f"principal axis {i + 1} ({parts[i]:.0f} % of variance)" for i in (0, 1))
    return Plane(origin, scale, Vt[:2], (first, second))


def finite_rows(x: Float) -> Float:
    """The rows without NaN or infinity, so that a diverged chain can be drawn."""
    kept: Float = x[np.isfinite(x).all(1)]
    return kept


def frame(data: Float, shown: Sequence[Float]) -> Float:
    """Limits (low, high) of each axis; (2, k).

    They hold all of the data (n, k) and 98 % of each set in `shown`, as far as that lies within
    half of the data's extent around the data.
    """
    low, high = data.min(0), data.max(0)
    span = np.where(high > low, high - low, 1.0)
    ends = [np.quantile(part, (0.01, 0.99), axis=0) for part in shown if len(part)]  # (2, k) each
    first = np.min([low, *(end[0] for end in ends)], axis=0)
    last = np.max([high, *(end[1] for end in ends)], axis=0)
    edges = (np.maximum(first, low - span / 2), np.minimum(last, high + span / 2))
    return np.stack([edges[0] - 0.04 * span, edges[1] + 0.04 * span])
