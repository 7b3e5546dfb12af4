"""Use cases: what the service does with a model, whoever asks and however it is sent.

Everything here is in the units of the user's data. Graphs and algebra run on the worker's threads,
so the event loop goes on serving, and rows of several requests share graph calls.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from service.core.errors import InputError, TooLargeError
from service.core.moments import Estimator, Moments, in_user_units, local_moments
from service.core.spectrum import Spectrum
from service.core.types import Doubles, Floats, Reals
from service.engine.model import Model
from service.engine.reconstructing import Reconstructing
from service.engine.repository import Repository
from service.engine.rows import check_range, check_width
from service.engine.spectra import Spectra, leading_spectra, vectors_at_once, whole_spectra
from service.engine.worker import Worker

CHUNK_VALUES = 2**18  # numbers in the vectors of one graph call


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
    reconstruction: Reals  # (n, d)
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
    """Local mean, covariance and score at every row."""

    model: str  # name@version
    estimator: Estimator
    covariance_scale: str  # "absolute" or "relative"
    sigma: float
    x: Reals  # (n, d)
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
        self, x: Reals, reference: str | None = None, sigma: float | None = None
    ) -> Reconstruction:
        work = self._reconstructing(x, reference, sigma)
        return Reconstruction(work.model.manifest.reference, **await self._worker.finish(work))

    def begin_reconstruction(self, x: Reals) -> Reconstructing:
        """By the default model; what is found comes as the work's answer."""
        work = self._reconstructing(x, None, None)
        self._worker.begin(work)
        return work

    def _reconstructing(
        self, x: Reals, reference: str | None, sigma: float | None
    ) -> Reconstructing:
        model = self._models.find(reference)
        self._admit(model, x, self._limits.rows, numbers=x.size)
        return Reconstructing(model, x, _noise_level(model, sigma))

    async def moments(
        self, x: Reals, question: Question, reference: str | None = None
    ) -> LocalMoments:
        model = self._models.find(reference)
        d = model.manifest.input_dims
        most = min(question.rank, d) + (d if question.covariance else 0)
        self._admit(model, x, self._limits.points, numbers=x.size * most)
        check_range(model, x)
        sigma = _noise_level(model, question.sigma)
        z = model.manifest.normaliser.to_model(x)
        parts: list[Moments] = []
        for rows in _chunks(len(z), CHUNK_VALUES // (d * self._vectors(d, question))):
            found = await self._spectra(model, z[rows], sigma, question)
            parts += await self._worker.call(_moments, model, z[rows], found, sigma, question)
        return await self._worker.call(_stacked, model, x, sigma, question, parts)

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

    def _whole(self, d: int, question: Question) -> bool:
        """A covariance has d² numbers, so that there the whole Jacobian costs no more."""
        return question.covariance or d <= self._limits.full_jacobian_dims

    def _vectors(self, d: int, question: Question) -> int:
        return vectors_at_once(d, question.rank, self._whole(d, question))

    async def _spectra(
        self, model: Model, z: Floats, sigma: float, question: Question
    ) -> Spectra:  # fmt: skip
        if self._whole(z.shape[1], question):
            return await whole_spectra(self._worker, model, z, sigma)
        return await leading_spectra(self._worker, model, z, sigma, question.rank)


def _noise_level(model: Model, sigma: float | None) -> float:
    """The level that was asked for, if the model was trained for it, or the model's own."""
    m = model.manifest
    if sigma is None:
        return m.sigma
    if m.noise_levels is None:
        raise InputError(f"{m.reference} was trained at one noise level; leave sigma out.")
    low, high = m.noise_levels
    if not low <= sigma <= high:
        raise InputError(f"sigma is {sigma:g}, but {m.reference} knows {low:g} to {high:g}.")
    return sigma


def _chunks(rows: int, most: int) -> Iterator[slice]:
    step = max(1, most)
    return (slice(start, start + step) for start in range(0, rows, step))


def _moments(
    model: Model, z: Floats, found: Spectra, sigma: float, question: Question
) -> list[Moments]:
    """In the user's units, with every eigenpair that was found."""
    m = model.manifest
    alpha = m.alpha if sigma == m.sigma else sigma**2

    def at(z: Floats, r: Floats, spectrum: Spectrum) -> Moments:
        local = local_moments(z, r, spectrum, alpha, question.estimator)
        return in_user_units(local, m.normaliser)

    return [at(*each) for each in zip(z, *found, strict=True)]


def _stacked(
    model: Model, x: Reals, sigma: float, question: Question, parts: Sequence[Moments]
) -> LocalMoments:
    m, k = model.manifest, question.rank
    return LocalMoments(
        m.reference,
        question.estimator,
        m.covariance_scale,
        sigma,
        x,
        mean=np.stack([p.mean for p in parts]),
        eigenvalues=np.stack([p.eigenvalues[:k] for p in parts]),
        tangents=np.stack([p.tangents[:k] for p in parts]),
        score=np.stack([p.score for p in parts]),
        covariance=np.stack([p.covariance() for p in parts]) if question.covariance else None,
    )
