"""How often each class is drawn, beside how often it is real."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from trainer.plots.sheet import ACCENT, FAINT, SECOND, blank, label, plain_axes, save
from trainer.plots.view import Float

COLOURS = (ACCENT, SECOND, FAINT)


def draw_classes(shares: Mapping[str, Float], names: Sequence[str], path: Path, title: str) -> None:
    """shares: for each set its part of every class (C,); at most three sets."""
    figure = blank(6.8, 3.4)
    axes = plain_axes(figure.add_subplot(), title)
    place, width = np.arange(len(names)), 0.8 / len(shares)
    for k, (name, part) in enumerate(shares.items()):
        at = place + (k - (len(shares) - 1) / 2) * width
        axes.bar(at, part, width, color=COLOURS[k % len(COLOURS)], label=name)
    axes.axhline(1 / len(names), color="#6b7280", lw=0.8, ls=":")
    axes.set_xticks(place, [str(name) for name in names])
    axes.legend(frameon=False, fontsize=8, ncols=len(shares), loc="upper left")
    axes.set_ylim(0, 1.25 * max(float(part.max()) for part in shares.values()))
    label(axes, "class", "part of the samples")
    save(figure, path)
