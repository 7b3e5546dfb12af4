"""Curves and bars: losses, bandwidths, mixing, distances, classes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from trainer.checkpoint import Loss
from trainer.plots.axes import (
    ACCENT,
    COLOURS,
    FAINT,
    GRID,
    SECOND,
    blank,
    label,
    plain_axes,
    save,
)
from trainer.plots.view import Float

DISTANCE_BINS = 60


def draw_losses(losses: Sequence[Loss], path: Path, title: str) -> None:
    """Training and held-out loss over the steps, one panel for each stage."""
    stages = sorted({loss.stage for loss in losses}) or [0]
    figure = blank(1.5 + 4.5 * len(stages), 3.6)
    panels = figure.subplots(1, len(stages), squeeze=False)[0]
    for stage, axes in zip(stages, panels, strict=True):
        name = title if len(stages) == 1 else f"{title}, layer {stage + 1}"
        plain_axes(axes, name)
        _draw_loss_panel(axes, [loss for loss in losses if loss.stage == stage])
    save(figure, path)


def _draw_loss_panel(axes: Axes, losses: Sequence[Loss]) -> None:
    steps = [loss.step for loss in losses]
    train, valid = [loss.train for loss in losses], [loss.valid for loss in losses]
    mark = "." if len(losses) < 3 else ""  # a line needs two ends
    axes.plot(steps, train, color=SECOND, lw=1.4, marker=mark, label="training rows")
    axes.plot(steps, valid, color=ACCENT, lw=1.8, marker=mark, label="held-out rows")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.legend(frameon=False, fontsize=8)
    label(axes, "step", "loss per row")
    values = np.array(train + valid)
    if len(values) and np.isfinite(values).all() and values.min() > 0:
        _set_loss_scale(axes, values)


def _set_loss_scale(axes: Axes, values: Float) -> None:
    """A logarithmic axis with plain numbers, and enough ticks if the curve stays in a decade."""
    axes.set_yscale("log")
    decades = np.log10(values.max() / values.min())
    subs = (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    narrow = decades < 0.3
    axes.yaxis.set_major_locator(MaxNLocator(5) if narrow else LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.4g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def draw_bandwidths(curves: Mapping[str, Mapping[float, float]], path: Path) -> None:
    """Mean log-likelihood of validation rows over the bandwidth, for each set of samples."""
    figure = blank(6.8, 3.8)
    axes = plain_axes(figure.add_subplot(), "Log-likelihood of validation rows over the bandwidth")
    best = [max(curve.values()) for curve in curves.values()]
    for k, (name, curve) in enumerate(curves.items()):
        colour, at = COLOURS[k % len(COLOURS)], max(curve, key=lambda h: curve[h])
        axes.plot(list(curve), list(curve.values()), color=colour, lw=1.4, label=name)
        axes.plot([at], [curve[at]], "o", color=colour, ms=4)
    axes.set_ylim(min(best) - 0.75 * abs(max(best)) - 50, max(best) + 0.1 * abs(max(best)) + 10)
    near = [h for curve in curves.values() for h in _near_the_best(curve)]
    axes.set_xlim(max(0, 1.5 * min(near) - 0.5 * max(near)), 1.05 * max(near))
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    label(axes, "bandwidth", "nats per row")
    save(figure, path)


def _near_the_best(curve: Mapping[float, float]) -> list[float]:
    """Bandwidths whose log-likelihood is close enough to the best to be shown."""
    best = max(curve.values())
    return [h for h, value in curve.items() if value > best - 0.75 * abs(best) - 50]


def draw_mixing(
    correlation: Float, names: Sequence[str], settling: Mapping[int, float], path: Path
) -> None:
    """Autocorrelation (lags + 1, f) of f functions, and the distance to the end of the run by
    step."""
    figure = blank(9.6, 3.6)
    left, right = figure.subplots(1, 2)
    plain_axes(left, "Autocorrelation of long chains")
    for k, name in enumerate(names):
        left.plot(correlation[:, k], color=COLOURS[k % len(COLOURS)], lw=1.4, label=name)
    left.axhline(0, color=FAINT, lw=0.8)
    left.set_ylim(min(-0.1, float(correlation.min())), 1.02)
    left.legend(frameon=False, fontsize=8)
    label(left, "lag in steps")
    plain_axes(right, "From noise: distance to the end of the run")
    right.plot(list(settling), list(settling.values()), ".-", color=ACCENT, lw=1.4, ms=5)
    right.set_xscale("log")
    right.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _set_log_scale(right, np.array(list(settling.values())))
    label(right, "step", "kernel distance")
    save(figure, path)


def _set_log_scale(axes: Axes, values: Float) -> None:
    """A logarithmic axis if all values are positive; a distance may be a little below 0."""
    axes.grid(axis="y", color=GRID, lw=0.8)
    if (values > 0).all():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.1g}"))
        axes.yaxis.set_minor_locator(NullLocator())


def draw_distances(shown: Mapping[str, Float], path: Path) -> None:
    """Histograms of the distance to the nearest training row; the first set is filled."""
    figure = blank(6.8, 3.4)
    axes = plain_axes(figure.add_subplot(), "Distance to the nearest training row")
    high = max(float(np.quantile(values, 0.995)) for values in shown.values())
    edges = np.linspace(0, high or 1.0, DISTANCE_BINS + 1)
    for k, (name, values) in enumerate(shown.items()):
        part = np.histogram(values, edges)[0] / len(values)
        colour = FAINT if k == 0 else COLOURS[k - 1]
        axes.stairs(part, edges, fill=k == 0, color=colour, lw=1.6, label=name)
    axes.legend(frameon=False, fontsize=8)
    label(axes, "distance", "share of rows")
    save(figure, path)


def draw_classes(shares: Mapping[str, Float], names: Sequence[str], path: Path, title: str) -> None:
    """Shares (C,) of every class in at most three sets."""
    colours = (ACCENT, SECOND, FAINT)
    figure = blank(6.8, 3.4)
    axes = plain_axes(figure.add_subplot(), title)
    place, width = np.arange(len(names)), 0.8 / len(shares)
    for k, (name, part) in enumerate(shares.items()):
        at = place + (k - (len(shares) - 1) / 2) * width
        axes.bar(at, part, width, color=colours[k], label=name)
    axes.axhline(1 / len(names), color="#6b7280", lw=0.8, ls=":")
    axes.set_xticks(place, [str(name) for name in names])
    axes.legend(frameon=False, fontsize=8, ncols=len(shares), loc="upper left")
    axes.set_ylim(0, 1.25 * max(float(part.max()) for part in shares.values()))
    label(axes, "class", "share of samples")
    save(figure, path)
