"""Figures for people: a table for the terminal and a picture for the page."""

from collections.abc import Sequence
from pathlib import Path

from interleave import Figure
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

COLOURS = {None: "#8a94a6", True: "#3a7d5c", False: "#b9483a"}
WORDS = {None: "", True: "met", False: "missed"}


def table(figures: Sequence[Figure]) -> str:
    """Median, spread and target of each, in columns."""
    lines = [("figure", "median", "lowest", "highest", "unit", "target", "")]
    lines += [_line(figure) for figure in figures]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    form = "  ".join(f"{{:{'>' if 1 <= i <= 3 else '<'}{w}}}" for i, w in enumerate(widths))
    return "\n".join(form.format(*line).rstrip() for line in lines)


def _line(f: Figure) -> tuple[str, str, str, str, str, str, str]:
    median, low, high = map(number, (f.median, min(f.values), max(f.values)))
    return f.name, median, low, high, f.unit, f.target, WORDS[f.met]


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw(figures: Sequence[Figure], path: Path, title: str) -> None:
    """What has a target: a bar to the median, a dot a round, a line at the target."""
    shown = [f for f in figures if f.target]
    canvas = Canvas(figsize=(9, 1.1 + 0.5 * len(shown)), dpi=120, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    for row, figure in enumerate(shown):
        _bar(axes, row, figure)
    axes.set_yticks(range(len(shown)), [f"{f.name} ({f.unit})" for f in shown])
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, loc="left", fontsize=10)
    canvas.savefig(path, format="png", facecolor="white")


def _bar(axes: Axes, row: int, figure: Figure) -> None:
    axes.barh(row, figure.median, height=0.5, color=COLOURS[figure.met], alpha=0.75)
    axes.plot(figure.values, [row] * len(figure.values), ".", color="black", ms=3, alpha=0.6)
    target = figure.at_least if figure.at_least is not None else figure.at_most
    if target is not None:
        axes.plot([target, target], [row - 0.38, row + 0.38], color="black", lw=1.5)
    words = number(figure.median) + (f", target {figure.target}" if figure.target else "")
    right = max(*figure.values, target or 0.0)
    axes.annotate(words, (right, row), (6, 0), textcoords="offset points", va="center", fontsize=9)
