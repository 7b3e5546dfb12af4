"""One column's values: the data filled in grey, whatever is compared with it as lines."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from trainer.plots.sheet import ACCENT, FAINT, SECOND, label
from trainer.plots.view import Float, View, frame

BINS = 40


def draw_histogram(axes: Axes, view: View, column: int, shown: Mapping[str, Float]) -> None:
    """Densities over common bins; values far from the data fall outside the frame."""
    data = view.background[:, column]
    finite = {name: values[np.isfinite(values)] for name, values in shown.items()}
    limits = frame(data[:, None], [values[:, None] for values in finite.values()])
    edges = np.linspace(limits[0, 0], limits[1, 0], BINS + 1)
    axes.stairs(_density(data, edges), edges, fill=True, color=FAINT, alpha=0.7, label="data")
    for name, values in finite.items():
        colour = SECOND if name == "corrupted" else ACCENT
        axes.stairs(_density(values, edges), edges, color=colour, lw=1.5, label=name)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    label(axes, view.feature(column))


def _density(values: Float, edges: Float) -> Float:
    """Counts over the number of all values, those outside the frame too."""
    counts, _ = np.histogram(values, edges)
    density: Float = counts / (max(1, len(values)) * np.diff(edges))
    return density
