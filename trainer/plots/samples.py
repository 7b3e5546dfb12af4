"""Where the chains go."""

from pathlib import Path

import numpy as np
from matplotlib.figure import SubFigure

from trainer.plots.histograms import draw_histogram
from trainer.plots.mosaic import shaded
from trainer.plots.scatter import dots, scatter_axes
from trainer.plots.sheet import ACCENT, blank, draw_sheet, plain_axes, save
from trainer.plots.view import Float, View, finite_rows, frame, plane_of

WALKERS, STEPS = 10, 20
COLUMNS = 4  # with a histogram
POINTS = 2_000  # more would hide the data


def draw_samples(view: View, chains: Float, path: Path, title: str) -> None:
    """chains (T, W, d): T kept steps of W walkers."""
    if view.image is not None:
        _images(view, chains, path, title)
    elif view.dims == 1:
        _histogram(view, chains, path, title)
    else:
        _points(view, chains, path, title)


def _images(view: View, chains: Float, path: Path, title: str) -> None:
    """A row a walker, from left to right in time."""
    assert view.image is not None
    T = len(chains)
    steps = np.unique(np.linspace(0, T - 1, min(STEPS, T)).round().astype(int))
    kept = chains[steps, :WALKERS].swapaxes(0, 1)  # (W, T, d)
    images = shaded(kept.reshape(-1, view.dims), view.image, view.low, view.high)
    draw_sheet(images, len(steps), path, title=title, headings=[str(t + 1) for t in steps])


def _points(view: View, chains: Float, path: Path, title: str) -> None:
    """All samples over the data; beside them, single columns where two are not all."""
    samples, wide = chains.reshape(-1, view.dims), view.dims > 2
    figure = blank(11.5 if wide else 6.4, 6.0)
    parts = figure.subfigures(1, 1 + wide, squeeze=False)[0]
    _scatter(parts[0], view, samples, title)
    if wide:
        _columns(parts[1], view, samples)
    save(figure, path)


def _scatter(figure: SubFigure, view: View, samples: Float, title: str) -> None:
    plane = plane_of(view)
    data, at = plane.points(view.background), plane.points(finite_rows(samples))
    limits = frame(data, [at])
    axes = scatter_axes(figure.add_subplot(), plane, data, limits)
    plain_axes(axes, title + _lost(at, limits, len(samples)))
    every = max(1, len(at) // POINTS)
    dots(axes, at[::every], 5, ACCENT, "samples", alpha=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper right", markerscale=2)


def _lost(at: Float, limits: Float, count: int) -> str:
    """What a reader cannot see: samples beyond the frame, or without a finite place."""
    inside = ((at >= limits[0]) & (at <= limits[1])).all(1).sum()
    return f"\n{count - inside:,} of {count:,} samples lie outside" if inside < count else ""


def _columns(figure: SubFigure, view: View, samples: Float) -> None:
    """Data and samples in the first few columns that vary at all."""
    varied = np.flatnonzero(view.background.std(0) > 0)[:COLUMNS]
    for k, j in enumerate(varied.tolist()):
        axes = plain_axes(figure.add_subplot(2, 2, k + 1))
        draw_histogram(axes, view, j, {"samples": samples[:, j]})


def _histogram(view: View, chains: Float, path: Path, title: str) -> None:
    figure = blank(6.4, 4.0)
    axes = plain_axes(figure.add_subplot(), title)
    draw_histogram(axes, view, 0, {"samples": chains.reshape(-1)})
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
