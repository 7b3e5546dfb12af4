"""Figures and axes: empty figures, axes without a box, scatter plots and histograms.

Figures are made without pyplot, which keeps every figure and the choice of backend in globals.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from trainer.atomic_files import replace_file
from trainer.plots.view import Float, Plane, View, frame

DPI = 100
INK, FAINT, GRID = "#2b2f36", "#b4bac4", "#e8eaee"
ACCENT, SECOND = "#2f6690", "#d1603d"
COLOURS = (ACCENT, SECOND, "#4c956c", "#8e6c8a", "#c9a227", "#6b7280")
MOST_POINTS = 3_000  # of the data behind a scatter plot; more would hide each other
BINS = 40  # of a histogram


def blank(width: float, height: float) -> Figure:
    """A white figure of this size in inches, whose axes leave room for each other's labels."""
    room = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white", layout=room)
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG in one step: a crash leaves no half file."""
    with replace_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=DPI)


def plain_axes(axes: Axes, title: str = "") -> Axes:
    """Draw two thin lines instead of a box, with small labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=8, color=FAINT, labelcolor=INK)
    axes.set_title(title, fontsize=10, color=INK, loc="left", parse_math=False)
    return axes


def label(axes: Axes, x: str, y: str = "") -> None:
    """Name the axes. A `$` in a column's name is not mathematics."""
    axes.set_xlabel(x, fontsize=9, color=INK, parse_math=False)
    axes.set_ylabel(y, fontsize=9, color=INK, parse_math=False)


def set_frame(axes: Axes, limits: Float) -> None:
    """Set limits (2, 2); a unit has the same length on both axes unless that would squeeze one."""
    (left, bottom), (right, top) = limits.tolist()
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    if 0.25 < (top - bottom) / (right - left) < 4:
        axes.set_aspect("equal", adjustable="box")


def scatter_axes(axes: Axes, plane: Plane, data: Float, limits: Float) -> Axes:
    """Show real rows (n, 2), in the plane's coordinates, as a faint background."""
    draw_dots(axes, data[:MOST_POINTS], 5, FAINT, "data", alpha=0.6)
    set_frame(axes, limits)
    label(axes, *plane.names)
    return axes


def draw_dots(
    axes: Axes, at: Float, size: float, colour: str, name: str | None = None, alpha: float = 1.0
) -> None:
    """Draw points (n, 2) without an outline."""
    axes.scatter(at[:, 0], at[:, 1], s=size, color=colour, alpha=alpha, lw=0, label=name)


def draw_histogram(axes: Axes, view: View, column: int, shown: Mapping[str, Float]) -> None:
    """Draw densities of a column over common bins: the data filled, other sets as lines.

    Values far from the data fall outside the frame.
    """
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
    """Counts divided by the number of all values, including those outside the frame."""
    counts, _ = np.histogram(values, edges)
    density: Float = counts / (max(1, len(values)) * np.diff(edges))
    return density
