"""What the model makes of corrupted rows."""

from pathlib import Path

import numpy as np

from trainer.plots.histograms import draw_histogram
from trainer.plots.mosaic import shaded
from trainer.plots.scatter import dots, scatter_axes
from trainer.plots.sheet import ACCENT, INK, SECOND, blank, draw_sheet, plain_axes, save
from trainer.plots.view import Float, View, frame, plane_of

TRIPLES, BLOCKS = 40, 4  # at most; side by side


def draw_reconstructions(
    view: View, x: Float, noisy: Float, reconstructed: Float, path: Path
) -> None:
    """Originals beside what the model was given and what it returned; each (n, d)."""
    if view.image is not None:
        _images(view, x, noisy, reconstructed, path)
    elif view.dims == 1:
        _histograms(view, noisy, reconstructed, path)
    else:
        _arrows(view, noisy, reconstructed, path)


def _images(view: View, x: Float, noisy: Float, reconstructed: Float, path: Path) -> None:
    """original | corrupted | reconstructed; two columns where nothing was corrupted."""
    assert view.image is not None
    parts = {"original": x, "corrupted": noisy, "reconstructed": reconstructed}
    if np.array_equal(x, noisy):
        del parts["corrupted"]
    rows = np.stack([part[:TRIPLES] for part in parts.values()], axis=1)  # (n, 3, d)
    blocks = min(BLOCKS, -(-len(rows) // 4))
    images = shaded(rows.reshape(-1, view.dims), view.image, view.low, view.high)
    draw_sheet(
        images, blocks * len(parts), path, title="Reconstructions of held-out images",
        headings=list(parts) * blocks, group=len(parts),
    )  # fmt: skip


def _arrows(view: View, noisy: Float, reconstructed: Float, path: Path) -> None:
    plane, figure = plane_of(view), blank(6.4, 6.0)
    a, b = plane.points(noisy), plane.points(reconstructed)  # (n, 2)
    data = plane.points(view.background)
    axes = scatter_axes(figure.add_subplot(), plane, data, frame(data, [a, b]))
    plain_axes(axes, "From corrupted rows to their reconstructions")
    way = b - a
    axes.quiver(
        *a.T, *way.T, angles="xy", scale_units="xy", scale=1, color=INK, alpha=0.45, width=0.0022
    )
    dots(axes, a, 9, SECOND, "corrupted")
    dots(axes, b, 12, ACCENT, "reconstructed")
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    save(figure, path)


def _histograms(view: View, noisy: Float, reconstructed: Float, path: Path) -> None:
    figure = blank(6.4, 4.0)
    axes = plain_axes(figure.add_subplot(), "Corrupted rows and their reconstructions")
    shown = {"corrupted": noisy[:, 0], "reconstructed": reconstructed[:, 0]}
    draw_histogram(axes, view, 0, shown)
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
