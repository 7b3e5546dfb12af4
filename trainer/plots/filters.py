"""What the first layer looks for."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.plots.mosaic import diverging
from trainer.plots.sheet import draw_sheet
from trainer.plots.view import View

FILTERS = 64


def draw_filters(view: View, weight: NDArray[np.floating], path: Path) -> None:
    """The rows of W (m, d) with the largest norms, as images; each to its own largest value."""
    if view.image is None:
        raise ValueError("filters are drawn of images only")
    W = np.asarray(weight, np.float64)
    order = np.argsort(-np.linalg.norm(W, axis=1), kind="stable")[:FILTERS]
    title = f"Filters of the first layer, the {len(order)} largest of {len(W)}"
    columns = math.ceil(math.sqrt(len(order)))
    draw_sheet(diverging(W[order], view.image), columns, path, title=title)
