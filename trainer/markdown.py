"""Numbers and tables in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any


def number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def pairs(rows: Mapping[str, Any]) -> str:
    """Two columns, without a heading."""
    return table(["", ""], [[key, number(value)] for key, value in rows.items()])


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |" if any(cells) else "|" + " |" * len(cells)

    return "\n".join([row(heads), "|" + "---|" * len(heads), *(row(line) for line in lines)])
