"""Samples: chains as images or over the data, and samples next to their nearest training images."""

from pathlib import Path

import numpy as np
from matplotlib.figure import SubFigure

from trainer.plots.axes import (
    ACCENT,
    blank,
    draw_dots,
    draw_histogram,
    plain_axes,
    save,
    scatter_axes,
)
from trainer.plots.images import draw_sheet, shade
from trainer.plots.view import Float, View, finite_rows, frame, plane_of

WALKERS, STEPS = 10, 20  # of a sheet of images
COLUMNS = 4  # with a histogram
POINTS = 2_000  # more would hide the data
PAIRS, BLOCKS = 24, 6  # of samples and their neighbours: in all; side by side


def draw_samples(view: View, chains: Float, path: Path, title: str) -> None:
    """Draw chains (T, W, d): T kept steps of W walkers, in the user's units."""
    if view.image is not None:
        _draw_images(view, chains, path, title)
    elif view.dims == 1:
        _draw_column(view, chains, path, title)
    else:
        _draw_points(view, chains, path, title)


def _draw_images(view: View, chains: Float, path: Path, title: str) -> None:
    """One row for each walker, steps from left to right."""
    assert view.image is not None
    T = len(chains)
    steps = np.unique(np.linspace(0, T - 1, min(STEPS, T)).round().astype(int))
    kept = chains[steps, :WALKERS].swapaxes(0, 1)  # (W, T, d)
    images = shade(kept.reshape(-1, view.dims), view.image, view.low, view.high)
    draw_sheet(images, len(steps), path, title=title, headings=[str(t + 1) for t in steps])


def _draw_points(view: View, chains: Float, path: Path, title: str) -> None:
    """All samples over the data; with more than two columns, histograms of some next to it."""
    samples, wide = chains.reshape(-1, view.dims), view.dims > 2
    figure = blank(11.5 if wide else 6.4, 6.0)
    parts = figure.subfigures(1, 1 + wide, squeeze=False)[0]
    _draw_scatter(parts[0], view, samples, title)
    if wide:
        _draw_columns(parts[1], view, samples)
    save(figure, path)


def _draw_scatter(figure: SubFigure, view: View, samples: Float, title: str) -> None:
    plane = plane_of(view)
    data, at = plane.points(view.background), plane.points(finite_rows(samples))
    limits = frame(data, [at])
    axes = scatter_axes(figure.add_subplot(), plane, data, limits)
    plain_axes(axes, title + _outside_note(at, limits, len(samples)))
    every = max(1, len(at) // POINTS)
    draw_dots(axes, at[::every], 5, ACCENT, "samples", alpha=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper right", markerscale=2)


def _outside_note(at: Float, limits: Float, count: int) -> str:
    """How many samples are not visible: outside the frame, or not finite."""
    inside = ((at >= limits[0]) & (at <= limits[1])).all(1).sum()
    return f"\n{count - inside:,} of {count:,} samples lie outside" if inside < count else ""


def _draw_columns(figure: SubFigure, view: View, samples: Float) -> None:
    """Histograms of data and samples in the first few columns that vary."""
    varied = np.flatnonzero(view.background.std(0) > 0)[:COLUMNS]
    for k, j in enumerate(varied.tolist()):
        axes = plain_axes(figure.add_subplot(2, 2, k + 1))
        draw_histogram(axes, view, j, {"samples": samples[:, j]})


def _draw_column(view: View, chains: Float, path: Path, title: str) -> None:
    figure = blank(6.4, 4.0)
    axes = plain_axes(figure.add_subplot(), title)
    draw_histogram(axes, view, 0, {"samples": chains.reshape(-1)})
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)


def draw_neighbours(view: View, samples: Float, nearest: Float, path: Path) -> None:
    """Draw samples and the nearest training rows side by side; images (n, d) each."""
    assert view.image is not None
    pairs = np.stack([samples[:PAIRS], nearest[:PAIRS]], axis=1)  # (n, 2, d)
    images = shade(pairs.reshape(-1, view.dims), view.image, view.low, view.high)
    blocks = min(BLOCKS, len(pairs))
    draw_sheet(
        images, 2 * blocks, path, title="Samples and their nearest training images",
        headings=["sample", "nearest"] * blocks, group=2,
    )  # fmt: skip
