"""Two things measured in turns, so that whatever else the machine does falls on both alike.

A ratio of two separate runs says as much about the machine's mood as about the code. Here the
turns are A B, B A, A B ..., a ratio is taken within each round, and the median and the whole
spread of those ratios are kept.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Measure = Callable[[], float]


@dataclass(frozen=True)
class Figure:
    """One number that was measured, with what it should be at best or at worst."""

    name: str
    unit: str
    values: tuple[float, ...]  # one a round
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median keeps the target; None where there is none."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return None if self.at_most is None else self.median <= self.at_most

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name, "unit": self.unit, "median": self.median,
            "lowest": min(self.values), "highest": max(self.values),
            "rounds": list(self.values), "target": self.target or None, "met": self.met,
        }  # fmt: skip


def interleaved(a: Measure, b: Measure, rounds: int) -> tuple[list[float], list[float]]:
    """What both gave in each round; the one that goes first changes."""
    first: list[float] = []
    second: list[float] = []
    for i in range(rounds):
        turns = [(first, a), (second, b)]
        for values, measure in turns if i % 2 == 0 else reversed(turns):
            values.append(measure())
    return first, second


def ratios(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
    return tuple(x / y for x, y in zip(a, b, strict=True))


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """The time of one of `times` calls."""
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times
