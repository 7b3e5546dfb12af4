"""Rows as pixels, and many small images as one large one. Pure arrays, nothing is drawn here."""

from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from trainer.plots.view import Float

Pixels = NDArray[np.uint8]  # (..., H, W, 3)

WHITE, RED = 255, (220, 30, 30)
WIDE, TALL = 80, 160  # pixels that a small image grows to, and that a large one shrinks to


@dataclass(frozen=True)
class Layout:
    """Where image (i, j) lies, in pixels from the upper left corner."""

    rows: int
    columns: int
    height: int  # of a cell
    width: int
    gap: int = 3  # between columns
    row_gap: int = 3
    group: int = 0  # columns that belong together, 0 for all
    group_gap: int = 18

    def top(self, i: int) -> int:
        return i * (self.height + self.row_gap)

    def left(self, j: int) -> int:
        wider = (j // self.group) * (self.group_gap - self.gap) if self.group else 0
        return j * (self.width + self.gap) + wider

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) of the whole"""
        return self.top(self.rows - 1) + self.height, self.left(self.columns - 1) + self.width


def mosaic(images: Pixels, layout: Layout) -> Pixels:
    """Images (n, h, w, 3) in reading order, each in the middle of its cell, on white."""
    page = np.full((*layout.size, 3), WHITE, np.uint8)
    h, w = images.shape[1:3]
    down, right = (layout.height - h) // 2, (layout.width - w) // 2
    for k, image in enumerate(images):
        i, j = divmod(k, layout.columns)
        top, left = layout.top(i) + down, layout.left(j) + right
        page[top : top + h, left : left + w] = image
    return page


def shaded(rows: Float, image: tuple[int, ...], low: float, high: float) -> Pixels:
    """Grey or colour from black at `low` to white at `high`, beyond which it is cut off.

    What is not a number is red; an image's opacity is laid over white. (n, d) -> (n, H, W, 3)
    """
    x = _resized(rows.reshape(len(rows), *image[:2], -1))  # (n, H, W, C)
    bad = np.asarray(~np.isfinite(x).all(3))
    part = np.clip((np.where(bad[..., None], low, x) - low) / ((high - low) or 1.0), 0, 1)
    colour, opacity = part[..., :3], part[..., 3:] if x.shape[3] == 4 else 1.0
    pixels = _bytes(np.broadcast_to(1 - opacity * (1 - colour), (*x.shape[:3], 3)))
    pixels[bad] = RED
    return pixels


def diverging(rows: Float, image: tuple[int, ...]) -> Pixels:
    """Blue below zero, red above, light grey at zero, each row to its own largest value.

    Colour images have a value a channel, so they are shown as a tint around middle grey.
    """
    x = _resized(rows.reshape(len(rows), *image[:2], -1))  # (n, H, W, C)
    most = np.abs(x).max((1, 2, 3), keepdims=True)
    part = 0.5 + 0.5 * x / np.where(most > 0, most, 1.0)
    if x.shape[3] == 1:
        return _bytes(colormaps["coolwarm"](part[..., 0])[..., :3])
    return _bytes(part[..., :3])


def _bytes(part: Float) -> Pixels:
    return np.rint(255 * part).astype(np.uint8)


def _resized(x: Float) -> Float:
    """Small images grow by whole factors and stay crisp; large ones become means of blocks."""
    h, w = x.shape[1:3]
    k = max(1, min(-(-WIDE // w), TALL // h))
    block = -(-max(h, w) // TALL)
    if block > 1:
        return _means(_means(x, block, 1), block, 2)
    return x.repeat(k, 1).repeat(k, 2)


def _means(x: Float, block: int, axis: int) -> Float:
    """Means of neighbours along an axis; the last block may be smaller."""
    edges = np.arange(0, x.shape[axis], block)
    counts = np.diff(edges, append=x.shape[axis])
    sums = np.add.reduceat(x, edges, axis=axis)
    means: Float = sums / counts.reshape(-1, *[1] * (x.ndim - 1 - axis))
    return means
