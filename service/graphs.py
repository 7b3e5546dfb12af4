"""A graph of a model, run as it is: in the model's units, float32 in and out.

What the other use cases do around a graph, units, noise and eigenpairs, is left to the caller.
"""

import math

import numpy as np

from localmoments.arrays import Floats
from localmoments.artefact import Graph
from localmoments.errors import InputError, TooLargeError, UnusableAnswerError
from localmoments.model import Arrays, Model
from service.caller import Caller
from service.engine.executor import Executor

LEVEL = "sigma"


class Graphs:
    """The use case over a executor; the most rows and numbers of one call."""

    def __init__(self, executor: Executor, rows: int, values: int) -> None:
        self._worker, self.rows, self._values = executor, rows, values

    async def run(self, model: Model, graph: str, inputs: Arrays, caller: Caller) -> Arrays:
        """Inputs fit the graph's shapes; the noise level may be left out."""
        entry = model.manifest.graphs[graph]
        rows = len(next(iter(inputs.values())))
        self._check_size(entry, inputs, rows)
        _check_level(model, inputs.get(LEVEL))
        self._worker.batcher.admit(rows)
        caller.charge(_cost(entry, inputs))
        own = model.noise_level(rows) if LEVEL in entry.inputs else {}
        given = own | inputs
        try:
            return await self._worker.run(model, graph, **{n: given[n] for n in entry.inputs})
        except UnusableAnswerError:  # raw inputs can be anything, so that this is their fault
            raise InputError(
                f"{model.manifest.reference} gives NaN or infinity for these inputs of {graph}."
            ) from None

    def _check_size(self, entry: Graph, inputs: Arrays, rows: int) -> None:
        if rows > self.rows:
            raise TooLargeError(f"There are {rows} rows, but {self.rows} are the most in one call.")
        axes = _axes(entry, inputs)
        shapes = [*entry.inputs.values(), *entry.outputs.values()]
        numbers = max(
            math.prod(n if isinstance(n, int) else axes.get(n, 1) for n in s) for s in shapes
        )
        if numbers > self._values:
            raise TooLargeError(
                f"A tensor would hold {numbers} numbers, but {self._values} are the most in one "
                "call: ask for fewer rows or vectors."
            )


def _axes(entry: Graph, inputs: Arrays) -> dict[str, int]:
    """The sizes of the axes that the graph gives only names."""
    pairs = [
        pair for name, array in inputs.items()
        for pair in zip(entry.inputs[name], array.shape, strict=True)
    ]  # fmt: skip
    return {axis: size for axis, size in pairs if isinstance(axis, str)}


def _cost(entry: Graph, inputs: Arrays) -> int:
    """In row-steps: a product with the Jacobian is much like a step of a walker."""
    return math.prod(_axes(entry, inputs).values())


def _check_level(model: Model, sigma: Floats | None) -> None:
    levels = model.manifest.noise_levels
    if sigma is None or levels is None:
        return
    low, high = np.float32(levels[0]), np.float32(levels[1])  # as the caller must round them
    if not ((low <= sigma) & (sigma <= high)).all():
        raise InputError(f"sigma leaves {low:g} to {high:g}, which {model.manifest.reference} "
                         "was trained for.")  # fmt: skip
