"""Write the results: JSON, Markdown tables and two plots."""

import json
import math
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from report import VERDICTS, format_markdown_table, format_spread

from serving.roster import DEPLOYED, LIMIT, OURS

Body = dict[str, Any]

INK, PAPER = "#24292f", "#ffffff"  # opaque, so that the plots are readable on a dark page
COLOURS = {OURS: "#3a7d5c", DEPLOYED: "#3a7d5c", LIMIT: "#c9a227"}
PEER, MET, MISSED = "#8a94a6", "#3a7d5c", "#b9483a"


def read_results(path: Path) -> Body:
    """Read earlier results, if there are any; scenarios that are not measured again are kept."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_results(folder: Path, body: Body, scenarios: list[str]) -> None:
    """Write serving.json, serving.md, serving.png and serving-ratios.png."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_replace_nan(body), indent=1, ensure_ascii=False) + "\n"
    (folder / "serving.json").write_text(text, encoding="utf-8")
    measured = {name: body[name] for name in scenarios if name in body}
    (folder / "serving.md").write_text(format_markdown(measured), encoding="utf-8")
    if "rows" in measured and "servers" in measured["rows"]:
        _draw_servers(measured["rows"]["servers"], folder / "serving.png")
    ratios = [f for s in measured.values() for f in s.get("figures", []) if _is_drawable(f)]
    if ratios:
        _draw_ratios(ratios, folder / "serving-ratios.png")


def _replace_nan(value: Any) -> Any:
    """Replace NaN, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _replace_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def format_markdown(body: Body) -> str:
    parts = []
    if "servers" in body.get("rows", {}):
        parts.append(_format_servers(body["rows"]["servers"]))
    for name, scenario in body.items():
        if "unavailable" in scenario:
            parts.append(f"`{name}` could not be measured: {scenario['unavailable']}\n")
        elif scenario.get("figures"):
            parts.append(f"**{name}**\n\n" + _format_figures(scenario["figures"]))
    return "\n".join(parts)


def _format_servers(servers: Body) -> str:
    header = ["server", "1 row, requests/s", "p50 ms", "p99 ms", "64 rows, rows/s", "p99 ms",
              "memory MB", "idle cores"]  # fmt: skip
    lines = []
    for each in servers.values():
        if "unavailable" in each:
            lines.append([each["label"], f"not measured: {each['unavailable'][:80]}"] + [""] * 6)
            continue
        one, block = each["cases"]["one"], each["cases"]["block"]
        cells = [one["requests_per_s"], one["p50_ms"], one["p99_ms"], block["rows_per_s"],
                 block["p99_ms"], one["rss_mb"], one["idle_cores"]]  # fmt: skip
        lines.append([each["label"], *map(format_spread, cells)])
    return format_markdown_table(header, lines) + "\n"


def _format_figures(figures: list[Body]) -> str:
    header = ["figure", "median (lowest to highest)", "unit", "target", ""]
    lines = []
    for f in figures:
        verdict = VERDICTS[f["met"]]
        lines.append([f["name"], format_spread(f), f["unit"], f["target"] or "", verdict])
    return format_markdown_table(header, lines) + "\n"


def _draw_servers(servers: Body, path: Path) -> None:
    measured = {name: each for name, each in servers.items() if "cases" in each}
    canvas = Canvas(figsize=(9, 0.45 * len(measured) + 1.2), layout="constrained", facecolor=PAPER)
    axes = canvas.subplots(1, 2, sharey=True)
    for ax, (case, metric, title) in zip(axes, (
        ("one", "requests_per_s", "one row as JSON, 32 clients: requests/s"),
        ("block", "rows_per_s", "64 rows per request, 8 clients: rows/s"),
    ), strict=True):  # fmt: skip
        _draw_bars(ax, measured, case, metric)
        _style(ax, title)
    axes[0].invert_yaxis()  # shared by both
    _save(canvas, path)


def _draw_bars(ax: Axes, servers: Body, case: str, metric: str) -> None:
    cells = [each["cases"][case][metric] for each in servers.values()]
    medians = [cell["median"] for cell in cells]
    below = [c["median"] - c["lowest"] for c in cells]
    above = [c["highest"] - c["median"] for c in cells]
    colours = [COLOURS.get(name, PEER) for name in servers]
    at = range(len(servers))
    ax.barh(
        at, medians, color=colours, xerr=[below, above], error_kw={"ecolor": INK, "elinewidth": 0.8}
    )
    ax.set_yticks(at, [each["label"] for each in servers.values()])
    ax.bar_label(ax.containers[-1], [f"  {m:,.0f}" for m in medians], color=INK, fontsize=8)  # type: ignore[arg-type]
    ax.set_xlim(0, 1.25 * max(c["highest"] for c in cells))


def _is_drawable(f: Body) -> bool:
    values = f["median"], f["lowest"], f["highest"]
    finite = all(value is not None and value > 0 for value in values)
    return finite and f["target"] is not None and f["unit"] == "×"


def _draw_ratios(figures: list[Body], path: Path) -> None:
    """Draw each ratio divided by its target."""
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
    _style(ax, "ratio divided by its target; lines: lowest to highest round")
    _save(canvas, path)


def _style(ax: Axes, title: str) -> None:
    ax.set_title(title, fontsize=9, color=INK)
    ax.tick_params(colors=INK, labelsize=8)
    ax.set_facecolor(PAPER)
    ax.spines[["top", "right"]].set_visible(False)


def _save(canvas: Canvas, path: Path) -> None:
    FigureCanvasAgg(canvas)
    canvas.savefig(path, dpi=110, facecolor=PAPER)
