"""Local moments at many points: eigenpairs, moments, indicators and dimensions, in one answer.

Which eigenpairs are found depends on the units. In the data's units, D = diag(scale):

    asymptotic   pairs of D A D, leading or all                        (scaled_moments)
    inverted     all pairs of A, unless D is a number, as for images   (in_user_units)

The local intrinsic dimension is tr J + ‖r − x‖²/σ² (FLIPD); on a k-dimensional manifold it tends to
k as σ goes to 0.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from localmoments.arrays import Doubles, Floats, Reals
from localmoments.errors import InputError
from localmoments.estimators import (
    FULL_JACOBIAN_DIMS,
    Estimator,
    Moments,
    Spread,
    Units,
    in_user_units,
    local_moments,
    scaled_moments,
)
from localmoments.model import Model
from localmoments.spectrum import Spectrum
from localmoments.trust import (
    Trust,
    chunks,
    clipped,
    dimension,
    masses,
    percentile,
    probes,
    statistic,
    trace_of,
)
from service.engine.executor import Executor
from service.engine.spectra import Spectra, leading_spectra, vectors_at_once, whole_spectra
from service.engine.trust import jacobian_norms, jacobian_traces

CHUNK_VALUES = 2**18  # numbers in the vectors of one graph call
LEVELS = 9  # of a dimension curve

Part = Literal[
    "mean", "tangents", "covariance", "score", "trust", "dimension", "dimension_curve"
]  # fmt: skip
DEFAULT_PARTS: frozenset[Part] = frozenset({"mean", "tangents", "score"})


@dataclass(frozen=True)
class Question:
    """What is asked about local moments."""

    rank: int = 8
    estimator: Estimator = "asymptotic"
    units: Units = "data"
    parts: frozenset[Part] | None = None  # None: mean, tangents, and the score if it is known
    sigma: float | None = None  # the noise level, in the model's units; None: the model's own

    def asks(self, part: Part) -> bool:
        return part in (self.parts or ())


@dataclass(frozen=True)
class LocalMoments:
    """Local moments at every row; None for what was not asked for."""

    model: str  # name@version
    estimator: Estimator
    units: Units
    covariance_scale: str  # "absolute" or "relative"
    sigma: float
    x: Reals  # (n, d)
    mean: Doubles | None  # (n, d)
    eigenvalues: Doubles | None  # (n, k)
    tangents: Doubles | None  # (n, k, d)
    score: Doubles | None  # (n, d)
    covariance: Doubles | None  # (n, d, d)
    dimension: Doubles | None  # (n,)
    dimension_curve: tuple[Doubles, Doubles] | None  # noise levels (l,), dimensions (n, l)
    trust: list[Trust | None] | None  # of every row; None where nobody asked and all is well


@dataclass(frozen=True)
class Plan:
    """How eigenpairs are found."""

    whole: bool  # from the whole Jacobian
    scale: Doubles | None  # (d,): pairs of D A D
    rank: int
    vectors: int  # a point in one graph call


@dataclass(frozen=True)
class Measured:
    """What indicators of some rows are made of."""

    spectra: Sequence[Spectrum]  # of every row
    whole: bool  # the pairs are all
    scale: Doubles | None  # (d,): they are those of D A D
    trace: Doubles | None = None  # (n,)
    asymmetry: Doubles | None = None  # (n,)


@dataclass(frozen=True)
class Local:
    """All that is found at one row."""

    moments: Moments
    dimension: float | None
    trust: Trust | None


def make_plan(
    model: Model, rows: int, question: Question, full_jacobian_dims: int, most_values: int
) -> Plan:
    """Whole Jacobian or leading pairs, and of A or of D A D.

    A covariance has d² numbers, so that there the whole Jacobian costs no more. The inverted
    covariance in the data's units is a function of A between two D, which needs all of A.
    Raises InputError for what the model cannot answer, or only with more than `most_values`.
    """
    _check_parts(model, question)
    d, normaliser = model.manifest.input_dims, model.manifest.normaliser
    mixed = question.units == "data" and not normaliser.is_uniform
    inverted = question.estimator == "inverted"
    whole = question.asks("covariance") or d <= full_jacobian_dims
    if mixed and inverted and not whole:
        if rows * d * d > most_values:
            raise InputError(
                f"`estimator=inverted` in data units needs the whole Jacobian of every row, {d} × "
                f"{d} numbers, because the columns have different scales. That is too large for "
                f"{rows} rows: ask for `units=standard`, or for fewer rows."
            )
        whole = True
    scale = normaliser.scale if mixed and not inverted else None
    return Plan(whole, scale, question.rank, vectors_at_once(d, question.rank, whole))


def _check_parts(model: Model, question: Question) -> None:
    """Refuse what has no meaning for this model."""
    m = model.manifest
    for part in ("score", "dimension", "dimension_curve"):
        if question.asks(part) and m.covariance_scale == "relative":
            raise InputError(
                f"{m.reference} knows its covariance only up to a factor, so `{part}` is unknown; "
                f"leave it out of `include`."
            )
    if question.asks("dimension_curve") and m.noise_levels is None:
        raise InputError(
            f"{m.reference} was trained at one noise level; ask for `dimension` instead of "
            "`dimension_curve`."
        )
    if question.asks("trust") and "jacobian" not in m.graphs:
        raise InputError(f"{m.reference} has no graph `jacobian`, which `trust` needs.")


async def find_moments(
    executor: Executor, model: Model, x: Reals, sigma: float, question: Question, plan: Plan
) -> LocalMoments:
    """Everything that was asked for; x (n, d) in the user's units."""
    z = model.manifest.normaliser.to_model(x)
    parts: list[Local] = []
    for rows in chunks(len(z), CHUNK_VALUES // (z.shape[1] * plan.vectors)):
        parts += await _at(executor, model, z[rows], sigma, question, plan)
    curve = await _curve(executor, model, z) if question.asks("dimension_curve") else None
    return await executor.call(_stacked, model, x, sigma, question, parts, curve)


async def _at(
    executor: Executor, model: Model, z: Floats, sigma: float, question: Question, plan: Plan
) -> list[Local]:
    """A few rows; z (n, d)."""
    r, spectra = await _spectra(executor, model, z, sigma, plan)
    measured = Measured(spectra, plan.whole, plan.scale)
    if question.asks("trust"):
        trace, asymmetry = await jacobian_norms(executor, model, z, sigma)
        if plan.scale is not None:  # masses are those of A, not of D A D
            _, unscaled = await _spectra(executor, model, z, sigma, replace(plan, scale=None))
            measured = Measured(unscaled, plan.whole, None)
        measured = replace(measured, trace=trace, asymmetry=asymmetry)
    elif question.asks("dimension"):
        measured = replace(measured, trace=await jacobian_traces(executor, model, z, sigma))
    return await executor.call(_locals, model, z, (r, spectra), sigma, question, plan, measured)


async def _spectra(
    executor: Executor, model: Model, z: Floats, sigma: float, plan: Plan
) -> Spectra:  # fmt: skip
    if plan.whole:
        return await whole_spectra(executor, model, z, sigma, plan.scale)
    return await leading_spectra(executor, model, z, sigma, plan.rank, plan.scale)


async def _curve(executor: Executor, model: Model, z: Floats) -> tuple[Doubles, Doubles]:
    """Local dimension over the model's noise levels; (l,), (n, l)."""
    levels = model.manifest.noise_levels
    assert levels is not None  # by _check_parts
    sigmas = np.geomspace(*levels, LEVELS).clip(*levels)
    columns = []
    for sigma in sigmas.tolist():
        column = []
        for rows in chunks(len(z), CHUNK_VALUES // probes(z.shape[1]).size):
            level = model.noise_level(len(z[rows]), sigma)
            r = (await executor.run(model, "reconstruct", x=z[rows], **level))["mean"]
            trace = await jacobian_traces(executor, model, z[rows], sigma)
            column.append(dimension(z[rows], r, model.alpha(sigma), trace))
        columns.append(np.concatenate(column))
    return sigmas, np.stack(columns, axis=1)


def _moments(
    model: Model, z: Floats, found: Spectra, sigma: float, question: Question, plan: Plan
) -> list[Moments]:
    """In the units that were asked for, with every eigenpair that was found."""
    normaliser, alpha = model.manifest.normaliser, model.alpha(sigma)
    inverted = question.estimator == "inverted"
    spread = Spread(model.start_points()) if inverted else None

    def at(z: Floats, r: Floats, spectrum: Spectrum) -> Moments:
        if plan.scale is not None:
            return scaled_moments(z, r, spectrum, alpha, normaliser)
        local = local_moments(z, r, spectrum, alpha, question.estimator, spread)
        return in_user_units(local, normaliser) if question.units == "data" else local

    return [at(*each) for each in zip(z, *found, strict=True)]


def _locals(
    model: Model,
    z: Floats,
    found: Spectra,
    sigma: float,
    question: Question,
    plan: Plan,
    measured: Measured,
) -> list[Local]:
    """Moments with their dimension and indicators; only the indicators that cost nothing, and only
    where one is out of range, unless they are asked for."""
    m, alpha, n = model.manifest, model.alpha(sigma), len(z)
    r, trace = found[0], measured.trace
    if trace is None and measured.whole and z.shape[1] <= FULL_JACOBIAN_DIMS and m.typical:
        trace = np.array([trace_of(spectrum, measured.scale) for spectrum in measured.spectra])
    typicality: list[float | None] = [None] * n
    dimensions: list[float | None] = [None] * n
    if trace is not None and m.typical and sigma == m.moments_sigma:
        t = statistic(z, r, alpha, trace)
        typicality = [percentile(each, m.typical) for each in t]
    if trace is not None and question.asks("dimension"):
        dimensions = dimension(z, r, alpha, trace).tolist()
    local = []
    for i, moments in enumerate(_moments(model, z, found, sigma, question, plan)):
        spectrum = measured.spectra[i]
        below, above = masses(spectrum)
        trust = Trust(
            asymmetry=None if measured.asymmetry is None else float(measured.asymmetry[i]),
            mass_below_zero=below,
            mass_above_one=above if measured.scale is None else None,
            clipped=clipped(spectrum, question.estimator),
            shrunk=moments.shrunk,
            typicality=typicality[i],
            exact=measured.whole and z.shape[1] <= FULL_JACOBIAN_DIMS,
        )
        shown = question.asks("trust") or trust.warnings
        local.append(Local(moments, dimensions[i], trust if shown else None))
    return local


def _stacked(
    model: Model,
    x: Reals,
    sigma: float,
    question: Question,
    parts: Sequence[Local],
    curve: tuple[Doubles, Doubles] | None,
) -> LocalMoments:
    m, k = model.manifest, question.rank
    asked = question.parts
    if asked is None:
        known = m.covariance_scale == "absolute"
        asked = DEFAULT_PARTS if known else DEFAULT_PARTS - {"score"}
    local = [p.moments for p in parts]
    trust = [p.trust for p in parts]

    def stacked(part: Part, rows: Iterable[Doubles]) -> Doubles | None:
        return np.stack(list(rows)) if part in asked else None

    return LocalMoments(
        m.reference,
        question.estimator,
        question.units,
        m.covariance_scale,
        sigma,
        x,
        mean=stacked("mean", (p.mean for p in local)),
        eigenvalues=stacked("tangents", (p.eigenvalues[:k] for p in local)),
        tangents=stacked("tangents", (p.tangents[:k] for p in local)),
        score=stacked("score", (p.score for p in local)),
        covariance=stacked("covariance", (p.covariance() for p in local)),
        dimension=stacked("dimension", (np.asarray(p.dimension, np.float64) for p in parts)),
        dimension_curve=curve,
        trust=trust if any(trust) else None,
    )
