"""Format figures as text and Markdown, and draw those with a target as bars."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from measure import Figure

COLOURS = {None: "#8a94a6", True: "#3a7d5c", False: "#b9483a"}
VERDICTS = {None: "", True: "met", False: "missed"}


def format_table(figures: Sequence[Figure]) -> str:
    """Return median, spread and target of each figure in aligned columns."""
    lines = [("figure", "median", "lowest", "highest", "unit", "target", "")]
    lines += [_format_line(figure) for figure in figures]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    form = "  ".join(f"{{:{'>' if 1 <= i <= 3 else '<'}{w}}}" for i, w in enumerate(widths))
    return "\n".join(form.format(*line).rstrip() for line in lines)


def _format_line(f: Figure) -> tuple[str, str, str, str, str, str, str]:
    median, low, high = map(format_number, (f.median, min(f.values), max(f.values)))
    return f.name, median, low, high, f.unit, f.target, VERDICTS[f.is_met]


def format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def format_spread(figure: Mapping[str, Any]) -> str:
    """Return `median (lowest to highest)` of a stored figure, or the median of a single round."""
    values = [figure[name] for name in ("median", "lowest", "highest")]
    median, low, high = ("none" if v is None or v != v else format_number(v) for v in values)
    return median if len(figure.get("rounds", ())) < 2 else f"{median} ({low} to {high})"


def format_markdown_table(header: list[str], lines: Iterable[list[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def draw_bars(figures: Sequence[Figure], path: Path, title: str) -> None:
    """Draw figures that have a target: bars for medians, dots for rounds, lines for targets."""
    shown = [f for f in figures if f.target]
    canvas = Canvas(figsize=(9, 1.1 + 0.5 * len(shown)), dpi=120, layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.add_subplot()
    for row, figure in enumerate(shown):
        _draw_bar(axes, row, figure)
    axes.set_yticks(range(len(shown)), [f"{f.name} ({f.unit})" for f in shown])
    axes.set_xlim(left=0)
    axes.invert_yaxis()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, loc="left", fontsize=10)
    canvas.savefig(path, format="png", facecolor="white")


def _draw_bar(axes: Axes, row: int, figure: Figure) -> None:
    axes.barh(row, figure.median, height=0.5, color=COLOURS[figure.is_met], alpha=0.75)
    axes.plot(figure.values, [row] * len(figure.values), ".", color="black", ms=3, alpha=0.6)
    target = figure.at_least if figure.at_least is not None else figure.at_most
    if target is not None:
        axes.plot([target, target], [row - 0.38, row + 0.38], color="black", lw=1.5)
    label = format_number(figure.median) + (f", target {figure.target}" if figure.target else "")
    right = max(*figure.values, target or 0.0)
    axes.annotate(label, (right, row), (6, 0), textcoords="offset points", va="center", fontsize=9)
