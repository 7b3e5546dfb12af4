"""Use cases: what the service does with a model, whoever asks and however it is sent.

Everything here is in the units of the user's data. Graphs and algebra run on the worker's thread,
one call at a time, so the event loop goes on serving and long requests take turns.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from service.core.errors import InputError, TooLargeError, UnusableAnswerError
from service.core.moments import (
    BLOCKS,
    EXTRA,
    Estimator,
    Krylov,
    Moments,
    Spectrum,
    full_spectrum,
    in_user_units,
    local_moments,
    random_block,
)
from service.core.types import Doubles, Floats
from service.engine.model import Arrays, Model
from service.engine.repository import Repository

FARTHEST = 1e6  # in the model's units: beyond it float32 tells points apart no more
CHUNK_VALUES = 2**20  # numbers in the vectors v of one graph call

T = TypeVar("T")


class Worker:
    """One thread that computes while the event loop serves; onnxruntime releases the GIL."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")

    async def call(self, function: Callable[..., T], *args: object, **kwargs: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *args, **kwargs))

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for, and where the whole Jacobian ends."""

    rows: int
    points: int
    answer_values: int
    full_jacobian_dims: int


@dataclass(frozen=True)
class Reconstruction:
    model: str  # name@version
    reconstruction: Doubles  # (n, d)
    error: Doubles  # (n,), root mean square of r(x) - x


@dataclass(frozen=True)
class Question:
    """What is asked about local moments."""

    rank: int = 8
    estimator: Estimator = "asymptotic"
    covariance: bool = False
    sigma: float | None = None  # the noise level, in the model's units; None: the model's own


@dataclass(frozen=True)
class LocalMoments:
    model: str  # name@version
    estimator: Estimator
    covariance_scale: str  # "absolute" or "relative"
    sigma: float
    x: Doubles  # (n, d)
    mean: Doubles  # (n, d)
    eigenvalues: Doubles  # (n, k)
    tangents: Doubles  # (n, k, d)
    score: Doubles  # (n, d)
    covariance: Doubles | None  # (n, d, d)


class Sampling:
    """The use cases over a repository of models."""

    def __init__(self, models: Repository, worker: Worker, limits: Limits) -> None:
        self._models = models
        self._worker = worker
        self._limits = limits

    async def reconstruct(
        self, x: Doubles, reference: str | None = None, sigma: float | None = None
    ) -> Reconstruction:
        """r(x) of every row, and how far it lies from x."""
        model = self._models.find(reference)
        z = self._admitted(model, x, self._limits.rows, x.size)
        level = model.noise_level(len(z), _noise_level(model, sigma))
        r = model.manifest.normaliser.to_user(await self._mean(model, z, level))
        error = np.sqrt(np.square(r - x).mean(axis=1))
        return Reconstruction(model.manifest.reference, r, error)

    async def moments(
        self, x: Doubles, question: Question, reference: str | None = None
    ) -> LocalMoments:
        """Local mean, covariance and score at every row."""
        model = self._models.find(reference)
        d = model.manifest.input_dims
        numbers = len(x) * d * (min(question.rank, d) + (d if question.covariance else 0))
        z = self._admitted(model, x, self._limits.points, numbers)
        sigma = _noise_level(model, question.sigma)
        parts = []
        for rows in _chunks(len(z), self._rows_at_once(d, question)):
            r, spectra = await self._spectra(model, z[rows], sigma, question)
            parts += await self._worker.call(_moments, model, z[rows], r, spectra, sigma, question)
        return _stacked(model, x, sigma, question, parts)

    def _admitted(self, model: Model, x: Doubles, most: int, numbers: int) -> Floats:
        """The rows in the model's units, if they fit the model and the limits."""
        if not len(x):
            raise InputError("x has no rows.")
        if x.shape[1] != model.manifest.input_dims:
            raise InputError(f"x has {x.shape[1]} columns, but {model.manifest.reference} takes "
                             f"{model.manifest.input_dims}.")  # fmt: skip
        if len(x) > most:
            raise TooLargeError(f"x has {len(x)} rows, but {most} are the most in one request.")
        if numbers > self._limits.answer_values:
            raise TooLargeError(
                f"The answer would hold {numbers} numbers, but {self._limits.answer_values} are "
                "the most in one request: ask for fewer rows, a lower rank or no covariance."
            )
        _check_range(model, x)
        return model.manifest.normaliser.to_model(x)

    async def _mean(self, model: Model, z: Floats, level: Arrays) -> Floats:
        return (await self._run(model, "reconstruct", x=z, **level))["mean"]

    async def _run(self, model: Model, graph: str, **inputs: Floats) -> Arrays:
        out = await self._worker.call(model.run, graph, **inputs)
        for array in out.values():
            if not np.isfinite(array).all():
                raise UnusableAnswerError(f"{model.manifest.reference} gave NaN or infinity.")
        return out

    def _whole(self, d: int, question: Question) -> bool:
        """A covariance has d² numbers, so that there the whole Jacobian costs no more."""
        return question.covariance or d <= self._limits.full_jacobian_dims

    def _rows_at_once(self, d: int, question: Question) -> int:
        vectors = d if self._whole(d, question) else min(d, question.rank + EXTRA + 1)
        return max(1, CHUNK_VALUES // (vectors * d))

    async def _spectra(
        self, model: Model, z: Floats, sigma: float, question: Question
    ) -> tuple[Floats, list[Spectrum]]:
        """r(z), and eigenpairs of A at every row: all d, or those of a Krylov space."""
        level = model.noise_level(len(z), sigma)
        n, d = z.shape
        if self._whole(d, question):
            v = np.broadcast_to(np.eye(d, dtype=np.float32), (n, d, d))
            out = await self._run(model, "moments", x=z, v=np.ascontiguousarray(v), **level)
            return out["mean"], await self._worker.call(list, map(full_spectrum, out["products"]))
        r = await self._mean(model, z, level)
        spaces = [Krylov.begin(_start(z[i], r[i], question.rank)) for i in range(n)]
        for _ in range(BLOCKS):
            blocks = await self._worker.call(lambda: [space.next_block() for space in spaces])  # noqa: B023
            if not any(map(len, blocks)):
                break
            out = await self._run(model, "moments", x=z, v=_padded(blocks), **level)
            spaces = [_grown(*each) for each in zip(spaces, blocks, out["products"], strict=True)]
        return r, await self._worker.call(lambda: [space.spectrum() for space in spaces])


def _check_range(model: Model, x: Doubles) -> None:
    units = model.manifest.normaliser
    with np.errstate(over="ignore"):
        far = np.argwhere(np.abs(x - units.shift) > FARTHEST * units.scale)
    if len(far):
        i, j = far[0]
        raise InputError(f"x[{i}][{j}] is {x[i, j]:g}, too far from the data of "
                         f"{model.manifest.reference} for its numbers to mean anything.")  # fmt: skip
