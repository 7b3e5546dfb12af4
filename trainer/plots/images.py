"""Rows as images: pixels, mosaics of many small images, and labelled sheets of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray

from trainer.plots.axes import DPI, INK, blank, save
from trainer.plots.view import Float

Pixels = NDArray[np.uint8]  # (..., H, W, 3)

WHITE, RED = 255, (220, 30, 30)
WIDE, TALL = 80, 160  # pixels: small images grow to the first, large ones shrink to the second
MARGIN, LINE = 14, 16  # pixels around a sheet, and of a line of text
LETTER = 6.3  # pixels of a letter in small print


@dataclass(frozen=True)
class Layout:
    """The position of image (i, j), in pixels from the upper left corner."""

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
        """(H, W) of the whole mosaic"""
        return self.top(self.rows - 1) + self.height, self.left(self.columns - 1) + self.width


def mosaic(images: Pixels, layout: Layout) -> Pixels:
    """Lay out images (n, h, w, 3) in reading order, each in the middle of its cell, on white."""
    page = np.full((*layout.size, 3), WHITE, np.uint8)
    h, w = images.shape[1:3]
    down, right = (layout.height - h) // 2, (layout.width - w) // 2
    for k, image in enumerate(images):
        i, j = divmod(k, layout.columns)
        top, left = layout.top(i) + down, layout.left(j) + right
        page[top : top + h, left : left + w] = image
    return page


def shade(rows: Float, image: tuple[int, ...], low: float, high: float) -> Pixels:
    """Rows (n, d) as pixels (n, H, W, 3), from black at `low` to white at `high`.

    Values beyond are cut off. Values that are not finite are red. Opacity is laid over white.
    """
    x = _resize(rows.reshape(len(rows), *image[:2], -1))  # (n, H, W, C)
    bad = np.asarray(~np.isfinite(x).all(3))
    part = np.clip((np.where(bad[..., None], low, x) - low) / ((high - low) or 1.0), 0, 1)
    colour, opacity = part[..., :3], part[..., 3:] if x.shape[3] == 4 else 1.0
    pixels = _to_bytes(np.broadcast_to(1 - opacity * (1 - colour), (*x.shape[:3], 3)))
    pixels[bad] = RED
    return pixels


def shade_signed(rows: Float, image: tuple[int, ...]) -> Pixels:
    """Rows (n, d) as pixels: blue below zero, red above, light grey at zero.

    Each row is scaled by its own largest value. Colour images have one value per channel, so they
    are shown as a tint around middle grey.
    """
    x = _resize(rows.reshape(len(rows), *image[:2], -1))  # (n, H, W, C)
    most = np.abs(x).max((1, 2, 3), keepdims=True)
    part = 0.5 + 0.5 * x / np.where(most > 0, most, 1.0)
    if x.shape[3] == 1:
        return _to_bytes(colormaps["coolwarm"](part[..., 0])[..., :3])
    return _to_bytes(part[..., :3])


def _to_bytes(part: Float) -> Pixels:
    return np.rint(255 * part).astype(np.uint8)


def _resize(x: Float) -> Float:
    """Repeat the pixels of small images, and average blocks of large ones; (n, H, W, C)."""
    h, w = x.shape[1:3]
    k = max(1, min(-(-WIDE // w), TALL // h))
    block = -(-max(h, w) // TALL)
    if block > 1:
        return _block_means(_block_means(x, block, 1), block, 2)
    return x.repeat(k, 1).repeat(k, 2)


def _block_means(x: Float, block: int, axis: int) -> Float:
    """Means of blocks along an axis; the last block may be smaller."""
    edges = np.arange(0, x.shape[axis], block)
    counts = np.diff(edges, append=x.shape[axis])
    sums = np.add.reduceat(x, edges, axis=axis)
    means: Float = sums / counts.reshape(-1, *[1] * (x.ndim - 1 - axis))
    return means


def draw_sheet(
    images: Pixels,
    columns: int,
    path: Path,
    *,
    title: str,
    headings: Sequence[str] = (),
    captions: Sequence[str] = (),
    group: int = 0,
) -> None:
    """Draw images (n, h, w, 3) in reading order.

    Args:
        columns: images in a row.
        headings: one over each column.
        captions: one under each image.
        group: columns that belong together, with a wider gap between groups; 0 for all.
    """
    layout = _layout(images, columns, headings, captions, group)
    H, W = layout.size
    above = MARGIN + LINE + (LINE if headings else 0) + 4
    width = max(W, int(1.25 * LETTER * len(title))) + 2 * MARGIN
    height = above + H + (LINE if captions else 0) + MARGIN
    figure = blank(width / DPI, height / DPI)
    figure.figimage(mosaic(images, layout), MARGIN, height - above - H, origin="upper")

    def write(text: str, x: float, y: float, **how: object) -> None:
        figure.text(x / width, 1 - y / height, text, color=INK, parse_math=False, **how)  # type: ignore[arg-type]

    write(title, MARGIN, MARGIN + LINE - 6, fontsize=9, fontweight="bold")
    for j, text in enumerate(headings):
        middle = MARGIN + layout.left(j) + layout.width / 2
        write(text, middle, above - 6, fontsize=8, ha="center")
    for k, text in enumerate(captions):
        i, j = divmod(k, columns)
        middle = MARGIN + layout.left(j) + layout.width / 2
        below = above + layout.top(i) + layout.height
        write(text, middle, below + LINE - 4, fontsize=8, ha="center")
    save(figure, path)


def _layout(
    images: Pixels, columns: int, headings: Sequence[str], captions: Sequence[str], group: int
) -> Layout:
    """Make cells as large as the images, or as wide as the text over and under them."""
    n, h, w = images.shape[:3]
    words = max((len(text) for text in (*headings, *captions)), default=0)
    width = max(w, int(LETTER * words))
    row_gap = LINE + 6 if captions else 3
    return Layout(-(-n // columns), columns, h, width, row_gap=row_gap, group=group)
