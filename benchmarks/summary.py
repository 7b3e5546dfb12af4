"""Collect the figures of all benchmarks in one file, `benchmarks/results.json` (`make bench`).

Rounds, versions and the machine of each figure are in `benchmarks/results/`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FIELDS = ("name", "unit", "median", "lowest", "highest", "target", "met")


def find_figures(body: object) -> Iterator[dict[str, Any]]:
    """Yield all entries of `figures` lists at any depth of a results file."""
    if isinstance(body, dict):
        for key, value in body.items():
            if key == "figures":
                yield from ({name: each.get(name) for name in FIELDS} for each in value)
            else:
                yield from find_figures(value)


def main() -> None:
    figures = {
        path.stem: list(find_figures(json.loads(path.read_text(encoding="utf-8"))))
        for path in sorted((HERE / "results").glob("*.json"))
    }
    figures = {name: each for name, each in figures.items() if each}
    target = HERE / "results.json"
    target.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    count = sum(map(len, figures.values()))
    print(f"{target.relative_to(HERE.parent)} has {count} figures of {', '.join(figures)}.")


if __name__ == "__main__":
    main()
