"""Use cases: what the service does with a model, whoever asks and however it is sent.

Rows come in the units of the user's data. Graphs and algebra run on the executor's threads, so the
event loop goes on serving, and rows of several requests share graph calls.
"""

from dataclasses import dataclass

from localmoments.arrays import Doubles, Reals
from localmoments.errors import InputError, TooLargeError
from localmoments.model import Model
from localmoments.rows import check_range, check_width
from service.engine.executor import Executor
from service.engine.local_moments import LocalMoments, Question, find_moments, make_plan
from service.engine.reconstruction_job import ReconstructionJob
from service.engine.repository import ModelRepository


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for, and where the whole Jacobian ends."""

    rows: int
    points: int
    answer_values: int
    full_jacobian_dims: int


@dataclass(frozen=True)
class Reconstruction:
    """r(x) of every row, and how far it lies from x."""

    model: str  # name@version
    sigma: float  # the noise level that was used
    reconstruction: Reals  # (n, d)
    error: Doubles  # (n,), root mean square of (r(x) - x) / scale


class Inference:
    """The use cases over a repository of models."""

    def __init__(self, models: ModelRepository, executor: Executor, limits: Limits) -> None:
        self._models = models
        self._worker = executor
        self._limits = limits

    async def reconstruct(
        self, x: Reals, reference: str | None = None, sigma: float | None = None
    ) -> Reconstruction:
        work = self._reconstructing(x, reference, sigma)
        found = await self._worker.run_job(work)
        return Reconstruction(work.model.manifest.reference, work.sigma, **found)

    def begin_reconstruction(self, x: Reals) -> ReconstructionJob:
        """By the default model; what is found comes as the work's answer."""
        work = self._reconstructing(x, None, None)
        self._worker.start(work)
        return work

    def _reconstructing(
        self, x: Reals, reference: str | None, sigma: float | None
    ) -> ReconstructionJob:
        model = self._models.find(reference)
        self._admit(model, x, self._limits.rows, numbers=x.size)
        return ReconstructionJob(model, x, _noise_level(model, sigma))

    async def moments(
        self, x: Reals, question: Question, reference: str | None = None
    ) -> LocalMoments:
        model = self._models.find(reference)
        d = model.manifest.input_dims
        most = min(question.rank, d) + (d if question.asks("covariance") else 0)
        self._admit(model, x, self._limits.points, numbers=x.size * most)
        check_range(model, x)
        sigma, limits = _noise_level(model, question.sigma), self._limits
        plan = make_plan(model, len(x), question, limits.full_jacobian_dims, limits.answer_values)
        return await find_moments(self._worker, model, x, sigma, question, plan)

    def _admit(self, model: Model, x: Reals, most: int, numbers: int) -> None:
        """Refuse rows that do not fit the model, or an answer beyond the limits."""
        check_width(model, x)
        if len(x) > most:
            raise TooLargeError(f"x has {len(x)} rows, but {most} are the most in one request.")
        if numbers > self._limits.answer_values:
            raise TooLargeError(
                f"The answer would hold {numbers} numbers, but {self._limits.answer_values} are "
                "the most in one request: ask for fewer rows, a lower rank or no covariance."
            )
        self._worker.batcher.admit(len(x))


def _noise_level(model: Model, sigma: float | None) -> float:
    """The level that was asked for, if the model was trained for it, or the one for clean rows."""
    m = model.manifest
    if sigma is None:
        return m.moments_sigma
    if m.noise_levels is None:
        raise InputError(f"{m.reference} was trained at one noise level; leave sigma out.")
    low, high = m.noise_levels
    if not low <= sigma <= high:
        raise InputError(f"sigma is {sigma:g}, but {m.reference} knows {low:g} to {high:g}.")
    return sigma
