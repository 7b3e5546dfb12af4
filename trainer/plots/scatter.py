"""Axes with the data faintly in them, to draw over."""

from matplotlib.axes import Axes

from trainer.plots.sheet import FAINT, label, set_frame
from trainer.plots.view import Float, Plane

MOST = 3_000  # points of a background; more of them are a grey wall


def scatter_axes(axes: Axes, plane: Plane, data: Float, limits: Float) -> Axes:
    """Real rows (n, 2), already in the plane."""
    dots(axes, data[:MOST], 5, FAINT, "data", alpha=0.6)
    set_frame(axes, limits)
    label(axes, *plane.names)
    return axes


def dots(
    axes: Axes, at: Float, size: float, colour: str, label: str | None = None, alpha: float = 1.0
) -> None:
    """Points (n, 2) without an outline."""
    axes.scatter(at[:, 0], at[:, 1], s=size, color=colour, alpha=alpha, lw=0, label=label)
