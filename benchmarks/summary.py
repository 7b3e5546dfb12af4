"""Collect the figures of all benchmarks, and update the tables of docs/benchmarks.md.

    python benchmarks/summary.py

Writes benchmarks/results.json, and replaces everything between `<!-- table: NAME -->` and
`<!-- end -->` in docs/benchmarks.md by the table of that name (`make bench`).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from report import format_markdown_table, format_spread

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "benchmarks.md"
FIELDS = ("name", "unit", "median", "lowest", "highest", "target", "met")
MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Body = dict[str, Any]


def main() -> None:
    results = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(RESULTS.glob("*.json"))
    }
    figures = {name: list(find_figures(body)) for name, body in results.items()}
    figures = {name: each for name, each in figures.items() if each}
    target = HERE / "results.json"
    target.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    count = sum(map(len, figures.values()))
    print(f"{target.relative_to(HERE.parent)} has {count} figures of {', '.join(figures)}.")
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(update_tables(text, results), encoding="utf-8")
    print(f"{PAGE.relative_to(HERE.parent)} is up to date.")


def find_figures(body: object) -> Iterator[Body]:
    """Yield all entries of `figures` lists at any depth of a results file."""
    if isinstance(body, dict):
        for key, value in body.items():
            if key == "figures":
                yield from ({name: each.get(name) for name in FIELDS} for each in value)
            else:
                yield from find_figures(value)


def update_tables(text: str, results: Body) -> str:
    """Replace the tables of a page by those of the results."""
    return MARKED.sub(lambda m: f"{m[1]}{make_table(m[2], results)}\n{m[3]}", text)


def make_table(name: str, results: Body) -> str:
    """Return a table by its name: a results file, or a scenario of `serving`."""
    file, _, scenario = name.partition(".")
    body = results.get(file, {})
    if scenario == "versions":
        return format_markdown_table(["server", "versions"], (
            [peer, ", ".join(f"{package} {version}" for package, version in packages.items())]
            for peer, packages in body.get("versions", {}).items()
        ))  # fmt: skip
    if scenario == "servers":
        return _format_servers(body.get("rows", {}).get("servers", {}))
    if name == "table":
        return _format_laws(body)
    if name == "parity":
        return _format_parity(body)
    part = body.get(scenario, {}) if scenario else body
    lines = ([f["name"], format_spread(f), f["unit"]] for f in part.get("figures", ()))
    when = part.get("machine", {}).get("date", "")[:10]
    caption = f"{part['machine']['cores']} CPUs ({part['machine']['cpu']}), {when}." if when else ""
    return format_markdown_table(["figure", "median (lowest to highest)", "unit"], lines) + (
        f"\n\n{caption}" if caption else ""
    )


def _format_servers(servers: Body) -> str:
    header = ["server", "1 row, requests/s", "p99 ms", "64 rows, rows/s", "p99 ms", "memory MB"]
    lines = []
    for each in servers.values():
        if "cases" in each:
            one, block = each["cases"]["one"], each["cases"]["block"]
            cells = [one["requests_per_s"], one["p99_ms"], block["rows_per_s"], block["p99_ms"],
                     one["rss_mb"]]  # fmt: skip
            lines.append([each["label"], *map(format_spread, cells)])
    return format_markdown_table(header, lines)


def _format_laws(body: Body) -> str:
    header = ["law", "seconds", "error of the local mean", "angle of the top tangent"]
    return format_markdown_table(header, (
        [law, f"{f['seconds']:.0f}", f"{100 * f['mean error']:.1f} % of the data's scale",
         f"{f['tangent angle']:.1f}°"]
        for law, f in body.get("laws", {}).items()
    ))  # fmt: skip


def _format_parity(body: Body) -> str:
    header = ["recipe", "graphs", "largest difference"]
    return format_markdown_table(header, (
        [recipe, str(len(graphs)), f"{max(graphs.values()):.1e}"]
        for recipe, graphs in body.get("worst", {}).items()
    ))  # fmt: skip


if __name__ == "__main__":
    main()
