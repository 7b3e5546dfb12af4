"""Every figure of every benchmark in one file, `benchmarks/results.json` (`make bench`).

What each was measured with (rounds, versions, machine) stays in `benchmarks/results/`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KEPT = ("name", "unit", "median", "lowest", "highest", "target", "met")


def figures(body: object) -> Iterator[dict[str, Any]]:
    """Wherever they stand in a benchmark's file."""
    if isinstance(body, dict):
        for key, value in body.items():
            if key == "figures":
                yield from ({name: each.get(name) for name in KEPT} for each in value)
            else:
                yield from figures(value)


def main() -> None:
    found = {
        path.stem: list(figures(json.loads(path.read_text(encoding="utf-8"))))
        for path in sorted((HERE / "results").glob("*.json"))
    }
    known = {name: each for name, each in found.items() if each}
    target = HERE / "results.json"
    target.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    count = sum(map(len, known.values()))
    print(f"{target.relative_to(HERE.parent)} has {count} figures of {', '.join(known)}.")


if __name__ == "__main__":
    main()
