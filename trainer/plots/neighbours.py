"""Samples beside the training images that are nearest to them."""

from pathlib import Path

import numpy as np

from trainer.plots.mosaic import shaded
from trainer.plots.sheet import draw_sheet
from trainer.plots.view import Float, View

PAIRS, BLOCKS = 24, 6  # in all; side by side


def draw_neighbours(view: View, samples: Float, nearest: Float, path: Path) -> None:
    """Each (n, d); images only."""
    assert view.image is not None
    pairs = np.stack([samples[:PAIRS], nearest[:PAIRS]], axis=1)  # (n, 2, d)
    images = shaded(pairs.reshape(-1, view.dims), view.image, view.low, view.high)
    blocks = min(BLOCKS, len(pairs))
    draw_sheet(
        images, 2 * blocks, path, title="Samples and their nearest training images",
        headings=["sample", "nearest"] * blocks, group=2,
    )  # fmt: skip
