"""Computations that need a model's graphs, as generators of graph calls.

A generator yields a `Call`, receives the graph's outputs, and returns its result. It runs no graph
itself. So the same code runs in process (`run_calls`) and in the service's batcher, where its rows
share passes with the rows of other requests. Chain steps and local moments are such generators.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from localmoments.arrays import Arrays
from localmoments.errors import UnusableAnswerError

if TYPE_CHECKING:
    from localmoments.model import Model

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One pass of a graph. All arrays have the same number of rows, and a row of the outputs
    depends on the same row of the inputs alone."""

    graph: str
    inputs: Arrays


Calls: TypeAlias = Generator[Call, Arrays, T]


def run_calls(model: Model, calls: Calls[T], check: Callable[[Arrays], None] | None = None) -> T:
    """Run a generator of graph calls in process and return its result.

    Args:
        check: raises if the outputs of a call are unusable. Default: `check_finite`.
    """
    outputs: Arrays | None = None
    while True:
        try:
            call = next(calls) if outputs is None else calls.send(outputs)
        except StopIteration as end:
            result: T = end.value
            return result
        outputs = model.run(call.graph, **call.inputs)
        if check is None:
            check_finite(model, outputs)
        else:
            check(outputs)


def check_finite(model: Model, outputs: Arrays) -> None:
    """Raise UnusableAnswerError if an output holds NaN or infinity."""
    if not all(np.isfinite(array).all() for array in outputs.values()):
        raise UnusableAnswerError(f"{model.manifest.reference} returned NaN or infinity.")
