"""In which directions the data goes on from a point: the leading eigenvectors of its covariance."""

from pathlib import Path

import numpy as np

from trainer.plots.histograms import draw_histogram
from trainer.plots.mosaic import diverging, shaded
from trainer.plots.scatter import dots, scatter_axes
from trainer.plots.sheet import ACCENT, blank, draw_sheet, label, plain_axes, save
from trainer.plots.view import Float, View, frame, plane_of

POINTS, TANGENTS = 12, 12  # of a sheet of images
SHORT, LONG, GOOD = 0.005, 0.2, 0.03  # parts of the frame's diagonal


def draw_tangents(
    view: View, points: Float, tangents: Float, eigenvalues: Float, path: Path
) -> None:
    """points (n, d), tangents (n, k, d) of unit length, eigenvalues (n, k), largest first."""
    if view.image is not None:
        _images(view, points, tangents, eigenvalues, path)
    elif view.dims == 1:
        _spread(view, points, eigenvalues, path)
    else:
        _segments(view, points, tangents, eigenvalues, path)


def _images(view: View, points: Float, tangents: Float, eigenvalues: Float, path: Path) -> None:
    """Each row: the point, then its tangents with their eigenvalues."""
    assert view.image is not None
    points, tangents = points[:POINTS], tangents[:POINTS, :TANGENTS]
    n, k, d = tangents.shape
    seen = shaded(points, view.image, view.low, view.high)  # (n, h, w, 3)
    ways = diverging(tangents.reshape(n * k, d), view.image)
    images = np.concatenate([seen[:, None], ways.reshape(n, k, *seen.shape[1:])], axis=1)
    words = [["", *(f"λ = {value:.2g}" for value in row[:k])] for row in eigenvalues[:n].tolist()]
    draw_sheet(
        images.reshape(-1, *seen.shape[1:]), 1 + k, path, title="Points and their leading tangents",
        headings=["point", *(f"tangent {j + 1}" for j in range(k))],
        captions=[word for row in words for word in row],
    )  # fmt: skip


def _segments(view: View, points: Float, tangents: Float, eigenvalues: Float, path: Path) -> None:
    """One standard deviation to both sides along the leading tangent."""
    plane, figure = plane_of(view), blank(6.4, 6.0)
    data, at = plane.points(view.background), plane.points(points)
    way = plane.vectors(np.sqrt(np.maximum(eigenvalues[:, :1], 0)) * tangents[:, 0])  # (n, 2)
    limits = frame(data, [at])
    factor = _magnification(way, limits)
    axes = scatter_axes(figure.add_subplot(), plane, data, limits)
    words = "" if factor == 1 else f", drawn × {factor:.2g}"
    plain_axes(axes, f"Leading tangents, ±1 standard deviation{words}")
    ends = np.stack([at - factor * way, at + factor * way])  # (2, n, 2)
    axes.plot(ends[..., 0], ends[..., 1], color=ACCENT, lw=1.2, alpha=0.9)
    dots(axes, at, 7, ACCENT)
    save(figure, path)


def _magnification(way: Float, limits: Float) -> float:
    """1 where the segments can be seen as they are, else what makes them visible."""
    diagonal = float(np.linalg.norm(limits[1] - limits[0]))
    typical = float(np.median(np.linalg.norm(way, axis=1)))
    if typical == 0 or SHORT * diagonal <= typical <= LONG * diagonal:
        return 1.0
    return GOOD * diagonal / typical


def _spread(view: View, points: Float, eigenvalues: Float, path: Path) -> None:
    """A single column has one direction only: how far the data goes on, over where."""
    figure = blank(6.4, 4.0)
    behind = plain_axes(figure.add_subplot(), "Local standard deviation over the data")
    draw_histogram(behind, view, 0, {})
    axes = behind.twinx()
    order = np.argsort(points[:, 0])
    spread = np.sqrt(np.maximum(eigenvalues[order, 0], 0))
    axes.plot(points[order, 0], spread, ".-", color=ACCENT, lw=1, ms=4)
    plain_axes(axes)
    axes.set_ylim(0, 1.15 * float(spread.max(initial=0)) or 1.0)
    axes.yaxis.tick_left()
    axes.yaxis.set_label_position("left")
    label(axes, "", "standard deviation")
    save(figure, path)
