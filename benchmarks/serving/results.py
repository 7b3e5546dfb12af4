"""What was measured, as plain values: one entry a scenario, each with its own date and machine.

Ratios are only ever taken within a scenario and a round, so scenarios may be measured on their own
and an older file's other entries are kept.
"""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from interleave import Figure, ratios

from serving.roster import LIMIT, OURS, OURS_IN_TWO, Contestant

Body = dict[str, Any]
OWN = {OURS: "", OURS_IN_TWO: ", 2 workers"}
RATIOS: tuple[tuple[str, str, str, float | None, float | None], ...] = (
    ("one row, requests/s", "one", "requests_per_s", 4.0, None),
    ("one row, p99", "one", "p99_ms", None, 1.0),
    ("64 rows, rows/s", "block", "rows_per_s", 4.0, None),
    ("64 rows, p99", "block", "p99_ms", None, 1.0),
)
BETTER = {"requests_per_s": max, "rows_per_s": max, "p99_ms": min}


def of_rows(contestants: Sequence[Contestant], found: dict[str, Any]) -> Body:
    """Every server's raw rounds with medians and spread, and the ratios that matter."""
    servers: Body = {}
    for each in contestants:
        rounds = found[each.name]
        if isinstance(rounds, str):
            servers[each.name] = {"label": each.label, "unavailable": rounds}
        else:
            servers[each.name] = {"label": each.label, "cases": _cases(rounds)}
    return {"servers": servers, "figures": [f.as_dict() for f in _ratios(found)]}


def _cases(rounds: list[dict[str, dict[str, float]]]) -> Body:
    return {
        case: {name: _spread([each[case][name] for each in rounds]) for name in rounds[0][case]}
        for case in rounds[0]
    }  # fmt: skip


def _spread(values: list[float]) -> Body:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values),
            "rounds": values}  # fmt: skip


def _ratios(found: dict[str, Any]) -> list[Figure]:
    """Ours against the best peer of the same round, and against the bare loop of the same round."""
    there = {name: rounds for name, rounds in found.items() if not isinstance(rounds, str)}
    peers = [name for name in there if name not in (*OWN, LIMIT)]
    figures: list[Figure] = []
    for own in OWN:
        if own in there:
            figures += _against(there, own, peers)
    alike = [name for name in peers if not name.endswith("-2")]
    if OURS in there and alike:
        ours = [each["one"]["requests_per_s"] for each in there[OURS]]
        best = _best(there, alike, "one", "requests_per_s")
        words = "one row, requests/s / best peer in one process"
        figures.append(Figure(words, "×", ratios(ours, best)))
    return figures


def _against(there: dict[str, Any], own: str, peers: list[str]) -> Iterator[Figure]:
    for words, case, metric, at_least, at_most in RATIOS:
        name, ours = f"{words}{OWN[own]}", [each[case][metric] for each in there[own]]
        if peers:
            against = ratios(ours, _best(there, peers, case, metric))
            yield Figure(f"{name} / best peer", "×", against, at_least, at_most)
        if LIMIT in there and metric != "p99_ms":
            limit = [each[case][metric] for each in there[LIMIT]]
            target = 0.8 if case == "one" else None
            yield Figure(f"{name} / bare ASGI loop", "×", ratios(ours, limit), target)


def _best(there: dict[str, Any], peers: list[str], case: str, metric: str) -> list[float]:
    rounds = range(len(there[peers[0]]))
    choose = BETTER[metric]
    return [choose(there[peer][i][case][metric] for peer in peers) for i in rounds]


def merged(path: Path, scenarios: Body) -> Body:
    """The file's entries, those that were measured now replaced."""
    old = json.loads(path.read_text()) if path.exists() else {}
    return {**old, **scenarios}


def write(path: Path, body: Body) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(_finite(body), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _finite(value: Any) -> Any:
    """JSON has no NaN: what was not measured is null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
