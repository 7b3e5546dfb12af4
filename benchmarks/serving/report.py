"""Figures for people: Markdown tables and pictures for the README."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from serving.roster import LIMIT, OURS, OURS_IN_TWO

INK, PAPER = "#24292f", "#ffffff"  # opaque, so that a dark page does not swallow the words
COLOURS = {OURS: "#3a7d5c", OURS_IN_TWO: "#3a7d5c", LIMIT: "#c9a227"}
PEER, MET, MISSED = "#8a94a6", "#3a7d5c", "#b9483a"
WORDS = {None: "", True: "met", False: "missed"}


def markdown(body: dict[str, Any]) -> str:
    parts = []
    if "rows" in body:
        parts += [_servers(body["rows"]["servers"])]
    for name, scenario in body.items():
        if "unavailable" in scenario:
            parts.append(f"`{name}` could not be measured: {scenario['unavailable']}\n")
        elif scenario.get("figures"):
            parts.append(f"**{name}**\n\n" + _figures(scenario["figures"]))
    return "\n".join(parts)


def _servers(servers: dict[str, Any]) -> str:
    head = ["server", "1 row, requests/s", "p50 ms", "p99 ms", "64 rows, rows/s", "p99 ms",
            "memory MB", "idle cores"]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for each in servers.values():
        if "unavailable" in each:
            lines.append([each["label"], f"not measured: {each['unavailable'][:80]}"] + [""] * 6)
            continue
        one, block = each["cases"]["one"], each["cases"]["block"]
        cells = [one["requests_per_s"], one["p50_ms"], one["p99_ms"], block["rows_per_s"],
                 block["p99_ms"], one["rss_mb"], one["idle_cores"]]  # fmt: skip
        lines.append([each["label"], *map(_spread, cells)])
    return _table(lines)


def _figures(figures: list[dict[str, Any]]) -> str:
    lines = [["figure", "median (lowest to highest)", "unit", "target", ""], ["---"] * 5]
    for f in figures:
        lines.append([f["name"], _spread(f), f["unit"], f["target"] or "", WORDS[f["met"]]])
    return _table(lines)


def _table(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _spread(f: dict[str, Any]) -> str:
    if f["median"] is None:
        return "none"
    median, low, high = (_number(f[name]) for name in ("median", "lowest", "highest"))
    return median if len(f["rounds"]) < 2 else f"{median} ({low} to {high})"


def _number(x: float | None) -> str:
    if x is None:
        return "none"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def draw(body: dict[str, Any], folder: Path) -> list[Path]:
    drawn = []
    if "rows" in body:
        drawn.append(_draw_servers(body["rows"]["servers"], folder / "serving.png"))
    aimed = [f for s in body.values() for f in s.get("figures", []) if _drawable(f)]
    if aimed:
        drawn.append(_draw_ratios(aimed, folder / "serving-ratios.png"))
    return drawn


def _draw_servers(servers: dict[str, Any], path: Path) -> Path:
    there = {name: each for name, each in servers.items() if "cases" in each}
    canvas = Canvas(figsize=(9, 0.45 * len(there) + 1.2), layout="constrained", facecolor=PAPER)
    axes = canvas.subplots(1, 2, sharey=True)
    for ax, (case, metric, title) in zip(axes, (
        ("one", "requests_per_s", "one row as JSON, 32 clients: requests/s"),
        ("block", "rows_per_s", "64 rows a request, 8 clients: rows/s"),
    ), strict=True):  # fmt: skip
        _bars(ax, there, case, metric)
        _plain(ax, title)
    axes[0].invert_yaxis()  # both share it
    return _saved(canvas, path)


def _bars(ax: Axes, there: dict[str, Any], case: str, metric: str) -> None:
    cells = [each["cases"][case][metric] for each in there.values()]
    medians = [cell["median"] for cell in cells]
    below = [c["median"] - c["lowest"] for c in cells]
    above = [c["highest"] - c["median"] for c in cells]
    colours = [COLOURS.get(name, PEER) for name in there]
    at = range(len(there))
    ax.barh(
        at, medians, color=colours, xerr=[below, above], error_kw={"ecolor": INK, "elinewidth": 0.8}
    )
    ax.set_yticks(at, [each["label"] for each in there.values()])
    ax.bar_label(ax.containers[-1], [f"  {m:,.0f}" for m in medians], color=INK, fontsize=8)  # type: ignore[arg-type]
    ax.set_xlim(0, 1.25 * max(c["highest"] for c in cells))


def _drawable(f: dict[str, Any]) -> bool:
    return f["target"] is not None and f["unit"] == "×" and f["median"] is not None


def _draw_ratios(figures: list[dict[str, Any]], path: Path) -> Path:
    """Each ratio over its target: gains should lie to the right of 1, costs to the left."""
    canvas = Canvas(figsize=(9, 0.34 * len(figures) + 1), layout="constrained", facecolor=PAPER)
    ax = canvas.subplots()
    for i, f in enumerate(figures):
        target = float(f["target"].split()[1])
        colour = MET if f["met"] else MISSED
        ax.plot([f["lowest"] / target, f["highest"] / target], [i, i], color=colour, lw=1.5)
        ax.plot(f["median"] / target, i, "o", color=colour)
    ax.axvline(1, color=INK, lw=0.8, ls="--")
    ax.set_yticks(range(len(figures)), [f"{f['name']} {f['target']}" for f in figures])
    ax.invert_yaxis()
    ax.set_xscale("log")
    _plain(ax, "ratio divided by its target; lines: lowest to highest round")
    return _saved(canvas, path)


def _plain(ax: Axes, title: str) -> None:
    ax.set_title(title, fontsize=9, color=INK)
    ax.tick_params(colors=INK, labelsize=8)
    ax.set_facecolor(PAPER)
    ax.spines[["top", "right"]].set_visible(False)


def _saved(canvas: Canvas, path: Path) -> Path:
    FigureCanvasAgg(canvas)
    canvas.savefig(path, dpi=110, facecolor=PAPER)
    return path
