"""The loss curves, one panel a stage."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from trainer.checkpoint import Loss
from trainer.plots.sheet import ACCENT, SECOND, blank, label, plain_axes, save


def draw_losses(losses: Sequence[Loss], path: Path, title: str) -> None:
    """Training and held-out loss over the steps; a logarithmic axis where all are positive."""
    stages = sorted({loss.stage for loss in losses}) or [0]
    figure = blank(1.5 + 4.5 * len(stages), 3.6)
    panels = figure.subplots(1, len(stages), squeeze=False)[0]
    for stage, axes in zip(stages, panels, strict=True):
        name = title if len(stages) == 1 else f"{title}, layer {stage + 1}"
        plain_axes(axes, name)
        _panel(axes, [loss for loss in losses if loss.stage == stage])
    save(figure, path)


def _panel(axes: Axes, losses: Sequence[Loss]) -> None:
    steps = [loss.step for loss in losses]
    train, valid = [loss.train for loss in losses], [loss.valid for loss in losses]
    mark = "." if len(losses) < 3 else ""  # a line needs two ends
    axes.plot(steps, train, color=SECOND, lw=1.4, marker=mark, label="training rows")
    axes.plot(steps, valid, color=ACCENT, lw=1.8, marker=mark, label="held-out rows")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y", color="#e8eaee", lw=0.8)
    axes.legend(frameon=False, fontsize=8)
    label(axes, "step", "loss a row")
    values = np.array(train + valid)
    if len(values) and np.isfinite(values).all() and values.min() > 0:
        _logarithmic(axes, values)


def _logarithmic(axes: Axes, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    """Plain numbers at the ticks, and enough of them where the curve stays within a decade."""
    axes.set_yscale("log")
    decades = np.log10(values.max() / values.min())
    subs = (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    narrow = decades < 0.3
    axes.yaxis.set_major_locator(MaxNLocator(5) if narrow else LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.4g}"))
    axes.yaxis.set_minor_locator(NullLocator())
