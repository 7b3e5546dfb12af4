"""Use cases on rows: reconstruct, moments, and a model's graph as it is.

Each checks the request against the limits and submits one job. Graphs and algebra run on the
executor's threads, and rows of several requests share graph calls.
"""

import math
from dataclasses import dataclass

import numpy as np

from localmoments.arrays import Arrays, Floats, Reals
from localmoments.artefact import Graph
from localmoments.errors import InputError, TooLargeError, UnusableAnswerError
from localmoments.model import Model, Reconstruction
from localmoments.moments import LEVELS, Moments, MomentsField, MomentsSpec, find_moments
from localmoments.trust import PROBES
from service.caller import ANYONE, Caller
from service.engine.executor import Executor
from service.engine.reconstruction_job import ReconstructionJob
from service.engine.repository import ModelRepository

LEVEL = "sigma"  # the input of a graph that takes the noise level


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for."""

    rows: int  # of a reconstruction, or of a graph
    points: int  # rows of local moments
    answer_values: int  # numbers in an answer, or in a tensor of a graph


class Inference:
    """The use cases over a repository of models."""

    def __init__(self, models: ModelRepository, executor: Executor, limits: Limits) -> None:
        self._models, self._executor, self.limits = models, executor, limits

    async def reconstruct(
        self,
        x: Reals,
        reference: str | None = None,
        sigma: float | None = None,
        caller: Caller = ANYONE,
    ) -> Reconstruction:
        """Compute r(x) of rows (n, d) in the units of the data.

        Args:
            reference: `name` or `name@version`. Default: the default model.
            sigma: the noise level, in model units. Default: the model's level for clean rows.
            caller: is charged once the request has passed all checks.

        Raises:
            InputError, TooLargeError, UnknownModelError, OverloadError: the request is refused.
            RateError: the caller is over its limit.
            UnusableAnswerError: the model returned NaN or infinity.
        """
        model = self._models.find(reference)
        self._admit(model, x, self.limits.rows, numbers=x.size)
        job = ReconstructionJob(model, x, model.manifest.choose_sigma(sigma))
        caller.charge(len(x))
        outputs = await self._executor.run_job(job)
        return Reconstruction(model.manifest.reference, job.sigma, **outputs)

    async def moments(
        self, x: Reals, spec: MomentsSpec, reference: str | None = None, caller: Caller = ANYONE
    ) -> Moments:
        """Compute local moments at rows (n, d) in the units of the data.

        The arguments and errors are those of `reconstruct`.
        """
        model, limits = self._models.find(reference), self.limits
        d = model.manifest.input_dims
        numbers = x.size * (min(spec.rank, d) + (d if spec.includes("covariance") else 0))
        self._admit(model, x, limits.points, numbers)
        model.manifest.check_range(x)
        calls = find_moments(model, x, spec, max_values=limits.answer_values)
        caller.charge(_count_moments_row_steps(x, spec))
        return await self._executor.run_calls(model, calls)

    async def run_graph(self, model: Model, graph: str, inputs: Arrays, caller: Caller) -> Arrays:
        """Run a graph as it is, in model units.

        Args:
            inputs: float32 arrays that fit the graph's shapes. The noise level may be left out.

        Raises:
            InputError: the noise level is not one the model was trained at, or the model returns
                NaN or infinity for these inputs.
            TooLargeError, OverloadError: the request is refused.
        """
        entry = model.manifest.graphs[graph]
        rows = len(next(iter(inputs.values())))
        self._check_size(entry, inputs, rows)
        _check_level(model, inputs.get(LEVEL))
        self._executor.batcher.admit(rows)
        caller.charge(_count_graph_row_steps(entry, inputs))
        default = model.noise_level(rows) if LEVEL in entry.inputs else {}
        arrays = default | inputs
        try:
            return await self._executor.run(model, graph, **{n: arrays[n] for n in entry.inputs})
        except UnusableAnswerError:  # raw inputs can be anything, so this is the caller's fault
            raise InputError(
                f"{model.manifest.reference} returns NaN or infinity for these inputs of {graph}."
            ) from None

    def _admit(self, model: Model, x: Reals, most: int, numbers: int) -> None:
        """Refuse rows that do not fit the model, and answers beyond the limits."""
        model.manifest.check_width(x)
        if len(x) > most:
            raise TooLargeError(f"x has {len(x)} rows; the limit is {most}.")
        if numbers > self.limits.answer_values:
            raise TooLargeError(
                f"The answer would hold {numbers} numbers; the limit is "
                f"{self.limits.answer_values}. Ask for fewer rows, a lower rank or no covariance."
            )
        self._executor.batcher.admit(len(x))

    def _check_size(self, entry: Graph, inputs: Arrays, rows: int) -> None:
        limits = self.limits
        if rows > limits.rows:
            raise TooLargeError(f"There are {rows} rows; the limit is {limits.rows}.")
        axes = _measure_axes(entry, inputs)
        shapes = [*entry.inputs.values(), *entry.outputs.values()]
        numbers = max(
            math.prod(n if isinstance(n, int) else axes.get(n, 1) for n in s) for s in shapes
        )
        if numbers > limits.answer_values:
            raise TooLargeError(
                f"A tensor would hold {numbers} numbers; the limit is {limits.answer_values}. "
                "Ask for fewer rows or vectors."
            )


def _measure_axes(entry: Graph, inputs: Arrays) -> dict[str, int]:
    """Return the sizes of a graph's dynamic axes, by name."""
    pairs = [
        pair for name, array in inputs.items()
        for pair in zip(entry.inputs[name], array.shape, strict=True)
    ]  # fmt: skip
    return {axis: size for axis, size in pairs if isinstance(axis, str)}


def _count_moments_row_steps(x: Reals, spec: MomentsSpec) -> int:
    """Return the cost: an eigenpair costs about as much as a walker's step."""
    rows, d = len(x), int(x.shape[1])
    pairs = d if spec.includes("covariance") else min(spec.rank, d)
    probes: dict[MomentsField, int] = {"trust": 1, "dimension": 1, "dimension_curve": LEVELS}
    pairs += sum(times * min(PROBES, d) for part, times in probes.items() if spec.includes(part))
    return rows * pairs


def _count_graph_row_steps(entry: Graph, inputs: Arrays) -> int:
    """Return the cost: a product with the Jacobian costs about as much as a walker's step."""
    return math.prod(_measure_axes(entry, inputs).values())


def _check_level(model: Model, sigma: Floats | None) -> None:
    levels = model.manifest.noise_levels
    if sigma is None or levels is None:
        return
    low, high = np.float32(levels[0]), np.float32(levels[1])  # the caller's sigma is float32 too
    if not ((low <= sigma) & (sigma <= high)).all():
        raise InputError(
            f"sigma must be from {low:g} to {high:g}, the levels that "
            f"{model.manifest.reference} was trained at."
        )
