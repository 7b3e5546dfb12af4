"""What a model does at single rows: reconstructions, tangents, and first-layer filters."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.plots.axes import (
    ACCENT,
    INK,
    SECOND,
    blank,
    draw_dots,
    draw_histogram,
    label,
    plain_axes,
    save,
    scatter_axes,
)
from trainer.plots.images import draw_sheet, shade, shade_signed
from trainer.plots.view import Float, View, frame, plane_of

TRIPLES, BLOCKS = 40, 4  # of reconstructions: at most; side by side
POINTS, TANGENTS = 12, 12  # of a sheet of images
SHORT, LONG, GOOD = 0.005, 0.2, 0.03  # lengths of a segment, relative to the frame's diagonal
FILTERS = 64


def draw_reconstructions(
    view: View, x: Float, noisy: Float, reconstructed: Float, path: Path
) -> None:
    """Draw originals, what the model was given and what it returned; each (n, d), in the user's
    units."""
    if view.image is not None:
        _draw_triples(view, x, noisy, reconstructed, path)
    elif view.dims == 1:
        _draw_columns(view, noisy, reconstructed, path)
    else:
        _draw_arrows(view, noisy, reconstructed, path)


def _draw_triples(view: View, x: Float, noisy: Float, reconstructed: Float, path: Path) -> None:
    """original | corrupted | reconstructed; two columns if nothing was corrupted."""
    assert view.image is not None
    parts = {"original": x, "corrupted": noisy, "reconstructed": reconstructed}
    if np.array_equal(x, noisy):
        del parts["corrupted"]
    rows = np.stack([part[:TRIPLES] for part in parts.values()], axis=1)  # (n, 3, d)
    blocks = min(BLOCKS, -(-len(rows) // 4))
    images = shade(rows.reshape(-1, view.dims), view.image, view.low, view.high)
    draw_sheet(
        images, blocks * len(parts), path, title="Reconstructions of held-out images",
        headings=list(parts) * blocks, group=len(parts),
    )  # fmt: skip


def _draw_arrows(view: View, noisy: Float, reconstructed: Float, path: Path) -> None:
    plane, figure = plane_of(view), blank(6.4, 6.0)
    a, b = plane.points(noisy), plane.points(reconstructed)  # (n, 2)
    data = plane.points(view.background)
    axes = scatter_axes(figure.add_subplot(), plane, data, frame(data, [a, b]))
    plain_axes(axes, "From corrupted rows to their reconstructions")
    axes.quiver(
        *a.T,
        *(b - a).T,
        angles="xy",
        scale_units="xy",
        scale=1,
        color=INK,
        alpha=0.45,
        width=0.0022,
    )
    draw_dots(axes, a, 9, SECOND, "corrupted")
    draw_dots(axes, b, 12, ACCENT, "reconstructed")
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    save(figure, path)


def _draw_columns(view: View, noisy: Float, reconstructed: Float, path: Path) -> None:
    figure = blank(6.4, 4.0)
    axes = plain_axes(figure.add_subplot(), "Corrupted rows and their reconstructions")
    shown = {"corrupted": noisy[:, 0], "reconstructed": reconstructed[:, 0]}
    draw_histogram(axes, view, 0, shown)
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def draw_tangents(
    view: View, points: Float, tangents: Float, eigenvalues: Float, path: Path
) -> None:
    """Draw the leading eigenvectors of the local covariance at some points, in the user's units.

    Args:
        points: (n, d).
        tangents: (n, k, d), of unit length.
        eigenvalues: (n, k), largest first.
    """
    if view.image is not None:
        _draw_tangent_sheet(view, points, tangents, eigenvalues, path)
    elif view.dims == 1:
        _draw_deviation(view, points, eigenvalues, path)
    else:
        _draw_segments(view, points, tangents, eigenvalues, path)


def _draw_tangent_sheet(
    view: View, points: Float, tangents: Float, eigenvalues: Float, path: Path
) -> None:
    """One row for each point: the point, then its tangents with their eigenvalues."""
    assert view.image is not None
    points, tangents = points[:POINTS], tangents[:POINTS, :TANGENTS]
    n, k, d = tangents.shape
    shown = shade(points, view.image, view.low, view.high)  # (n, h, w, 3)
    signed = shade_signed(tangents.reshape(n * k, d), view.image)
    images = np.concatenate([shown[:, None], signed.reshape(n, k, *shown.shape[1:])], axis=1)
    captions = [
        ["", *(f"λ = {value:.2g}" for value in row[:k])] for row in eigenvalues[:n].tolist()
    ]
    draw_sheet(
        images.reshape(-1, *shown.shape[1:]), 1 + k, path,
        title="Points and their leading tangents",
        headings=["point", *(f"tangent {j + 1}" for j in range(k))],
        captions=[text for row in captions for text in row],
    )  # fmt: skip


def _draw_segments(
    view: View, points: Float, tangents: Float, eigenvalues: Float, path: Path
) -> None:
    """A segment of one standard deviation to both sides along the leading tangent."""
    plane, figure = plane_of(view), blank(6.4, 6.0)
    data, at = plane.points(view.background), plane.points(points)
    deviation = plane.vectors(np.sqrt(np.maximum(eigenvalues[:, :1], 0)) * tangents[:, 0])  # (n, 2)
    limits = frame(data, [at])
    factor = _magnification(deviation, limits)
    axes = scatter_axes(figure.add_subplot(), plane, data, limits)
    note = "" if factor == 1 else f", drawn × {factor:.2g}"
    plain_axes(axes, f"Leading tangents, ±1 standard deviation{note}")
    ends = np.stack([at - factor * deviation, at + factor * deviation])  # (2, n, 2)
    axes.plot(ends[..., 0], ends[..., 1], color=ACCENT, lw=1.2, alpha=0.9)
    draw_dots(axes, at, 7, ACCENT)
    save(figure, path)


def _magnification(deviation: Float, limits: Float) -> float:
    """1 if the segments are visible as they are, or else the factor that makes them so."""
    diagonal = float(np.linalg.norm(limits[1] - limits[0]))
    typical = float(np.median(np.linalg.norm(deviation, axis=1)))
    if typical == 0 or SHORT * diagonal <= typical <= LONG * diagonal:
        return 1.0
    return GOOD * diagonal / typical


def _draw_deviation(view: View, points: Float, eigenvalues: Float, path: Path) -> None:
    """A single column has one direction only: draw the standard deviation over the column."""
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


def draw_filters(view: View, weight: NDArray[np.floating], path: Path) -> None:
    """Draw the rows of W (m, d) with the largest norms, each scaled by its own largest value."""
    if view.image is None:
        raise ValueError("filters are drawn for images only")
    W = np.asarray(weight, np.float64)
    order = np.argsort(-np.linalg.norm(W, axis=1), kind="stable")[:FILTERS]
    title = f"Filters of the first layer, the {len(order)} largest of {len(W)}"
    columns = math.ceil(math.sqrt(len(order)))
    draw_sheet(shade_signed(W[order], view.image), columns, path, title=title)
