"""Measure two things in turn, and describe the machine that they were measured on.

A ratio of two separate runs depends on what else the machine was doing at the time. Here the order
is A B, B A, A B ..., a ratio is computed within each round, and the median is reported with the
lowest and the highest round.
"""

import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

Measurement = Callable[[], float]


@dataclass(frozen=True)
class Figure:
    """A measured quantity with one value per round, and optionally a target for its median."""

    name: str
    unit: str
    values: tuple[float, ...]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether the median meets the target; None without a target."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return None if self.at_most is None else self.median <= self.at_most

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return "" if self.at_most is None else f"<= {self.at_most:g}"

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name, "unit": self.unit, "median": self.median,
            "lowest": min(self.values), "highest": max(self.values),
            "rounds": list(self.values), "target": self.target or None, "met": self.is_met,
        }  # fmt: skip


def alternate(a: Measurement, b: Measurement, rounds: int) -> tuple[list[float], list[float]]:
    """Measure a and b once per round, in alternating order; return the values of both."""
    values_a: list[float] = []
    values_b: list[float] = []
    for i in range(rounds):
        pairs = [(values_a, a), (values_b, b)]
        for values, measurement in pairs if i % 2 == 0 else reversed(pairs):
            values.append(measurement())
    return values_a, values_b


def divide(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
    """Return a / b for each round; NaN where b is 0."""
    return tuple(x / y if y else float("nan") for x, y in zip(a, b, strict=True))


def time_call(function: Callable[[], object], repeats: int = 1) -> float:
    """Return the mean time of a call in seconds."""
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def describe_machine() -> dict[str, object]:
    """Return CPU, system, versions and date, to be stored with the figures."""
    return {
        "cpu": find_cpu_model(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def find_cpu_model() -> str:
    """Return the CPU's name: on Linux from /proc/cpuinfo, elsewhere from `platform`."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
