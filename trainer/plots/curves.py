"""Curves of an evaluation: bandwidths, autocorrelation, the way from noise, distances."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from trainer.plots.sheet import ACCENT, FAINT, SECOND, blank, label, plain_axes, save
from trainer.plots.view import Float

COLOURS = (ACCENT, SECOND, "#4c956c", "#8e6c8a", "#c9a227", "#6b7280")
GRID = "#e8eaee"
BINS = 60


def draw_bandwidths(curves: Mapping[str, Mapping[float, float]], path: Path) -> None:
    """For each set the mean log-likelihood of validation rows over the bandwidth."""
    figure = blank(6.8, 3.8)
    axes = plain_axes(figure.add_subplot(), "Log-likelihood of validation rows over the bandwidth")
    best = [max(curve.values()) for curve in curves.values()]
    for k, (name, curve) in enumerate(curves.items()):
        colour, at = COLOURS[k % len(COLOURS)], max(curve, key=lambda h: curve[h])
        axes.plot(list(curve), list(curve.values()), color=colour, lw=1.4, label=name)
        axes.plot([at], [curve[at]], "o", color=colour, ms=4)
    axes.set_ylim(min(best) - 0.75 * abs(max(best)) - 50, max(best) + 0.1 * abs(max(best)) + 10)
    near = [h for curve in curves.values() for h in _near(curve)]
    axes.set_xlim(max(0, 1.5 * min(near) - 0.5 * max(near)), 1.05 * max(near))
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    label(axes, "bandwidth", "nats a row")
    save(figure, path)


def _near(curve: Mapping[float, float]) -> list[float]:
    """Bandwidths that score within reach of the best."""
    best = max(curve.values())
    return [h for h, value in curve.items() if value > best - 0.75 * abs(best) - 50]


def draw_mixing(
    correlation: Float, names: Sequence[str], settling: Mapping[int, float], path: Path
) -> None:
    """Autocorrelation (lags + 1, f) of each function; the distance to the end of the run."""
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
    _logarithmic(right, np.array(list(settling.values())))
    label(right, "step", "kernel distance")
    save(figure, path)


def _logarithmic(axes: Axes, values: Float) -> None:
    """A logarithmic axis where all values are positive; a distance may be a little below 0."""
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
    edges = np.linspace(0, high or 1.0, BINS + 1)
    for k, (name, values) in enumerate(shown.items()):
        part = np.histogram(values, edges)[0] / len(values)
        colour = FAINT if k == 0 else COLOURS[k - 1]
        axes.stairs(part, edges, fill=k == 0, color=colour, lw=1.6, label=name)
    axes.legend(frameon=False, fontsize=8)
    label(axes, "distance", "part of the rows")
    save(figure, path)
