"""Local moments at many points: eigenpairs, moments, indicators and dimensions, in one result.

`find_moments` is a generator of graph calls (localmoments.graph_calls). The units decide which
eigenpairs it needs. In the units of the data, with D = diag(scale):

    asymptotic   pairs of D A D, leading or all                        (estimate_scaled_moments)
    inverted     all pairs of A, unless D is a number, as for images   (convert_to_data_units)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from localmoments.arrays import Doubles, Floats, Reals
from localmoments.errors import InputError
from localmoments.estimators import (
    FULL_JACOBIAN_DIMS,
    Estimator,
    PointMoments,
    Spread,
    Units,
    convert_to_data_units,
    estimate_moments,
    estimate_scaled_moments,
)
from localmoments.graph_calls import Call, Calls
from localmoments.spectrum import Spectrum, block_width, leading_spectra, whole_spectra
from localmoments.trust import (
    Trust,
    compute_dimension,
    compute_statistic,
    compute_trace,
    count_clipped,
    find_percentile,
    find_traces,
    find_traces_and_asymmetries,
    make_probes,
    measure_masses,
    split_rows,
)

if TYPE_CHECKING:
    from localmoments.model import Model

CHUNK_VALUES = 2**18  # numbers in the vectors of one graph call
LEVELS = 9  # noise levels of a dimension curve

MomentsField = Literal[
    "mean", "tangents", "covariance", "score", "trust", "dimension", "dimension_curve"
]  # fmt: skip
DEFAULT_FIELDS: frozenset[MomentsField] = frozenset({"mean", "tangents", "score"})


@dataclass(frozen=True)
class MomentsSpec:
    """Which local moments to compute, and how."""

    rank: int = 8
    estimator: Estimator = "asymptotic"
    units: Units = "data"
    include: frozenset[MomentsField] | None = None  # None: mean, tangents, and score if known
    sigma: float | None = None  # the noise level in model units; None: the one for clean rows

    def includes(self, field: MomentsField) -> bool:
        return field in (self.include or ())


@dataclass(frozen=True)
class Moments:
    """Local moments at n rows; a field is None if it was not included.

    `units` says whether values are in the units of the data or in standard (model) units. For a
    single row the arrays have no leading axis n, and `trust` is one `Trust` or None.
    """

    model: str  # name@version
    estimator: Estimator
    units: Units
    covariance_scale: str  # "absolute" or "relative"
    sigma: float  # the noise level, in model units
    x: Reals  # (n, d)
    mean: Doubles | None  # (n, d)
    eigenvalues: Doubles | None  # (n, k), of the covariance, largest first
    tangents: Doubles | None  # (n, k, d), unit vectors
    score: Doubles | None  # (n, d)
    covariance: Doubles | None  # (n, d, d)
    dimension: Doubles | None  # (n,)
    dimension_curve: tuple[Doubles, Doubles] | None  # noise levels (l,), dimensions (n, l)
    trust: list[Trust | None] | None  # per row; None if not included and all values are in range

    def take_row(self, row: int) -> Moments:
        """Return the moments at one row; arrays lose their first axis."""
        names = ("x", "mean", "eigenvalues", "tangents", "score", "covariance", "dimension")
        rows: dict[str, Any] = {name: getattr(self, name) for name in (*names, "trust")}
        fields: dict[str, Any] = {k: None if v is None else v[row] for k, v in rows.items()}
        if self.dimension_curve is not None:
            sigma, dimension = self.dimension_curve
            fields["dimension_curve"] = (sigma, dimension[row])
        return replace(self, **fields)


@dataclass(frozen=True)
class SpectrumPlan:
    """Which eigenpairs to find, and how."""

    whole: bool  # all pairs, from the whole Jacobian
    scale: Doubles | None  # (d,): pairs of D A D
    rank: int
    width: int  # vectors per point in one graph call


def find_moments(
    model: Model,
    x: Reals,
    spec: MomentsSpec,
    full_jacobian_dims: int = FULL_JACOBIAN_DIMS,
    max_values: float = math.inf,
) -> Calls[Moments]:
    """Check a request and return the generator that computes it.

    Args:
        x: (n, d), in the units of the data. The caller has checked width and range.
        full_jacobian_dims: up to this many columns, use the whole Jacobian.
        max_values: the most numbers that the Jacobians of all rows may hold.

    Raises:
        InputError: the model cannot compute this, or only with more than `max_values` numbers.
    """
    sigma = model.manifest.choose_sigma(spec.sigma)
    plan = plan_spectra(model, len(x), spec, full_jacobian_dims, max_values)
    return _find_all(model, x, sigma, spec, plan)


def plan_spectra(
    model: Model, rows: int, spec: MomentsSpec, full_jacobian_dims: int, max_values: float
) -> SpectrumPlan:
    """Choose the whole Jacobian or leading pairs, and A or D A D.

    A covariance has d² numbers, so computing it from the whole Jacobian costs no more. The inverted
    covariance in data units is D f(A) D for a function f, which needs all of A.
    """
    _check_fields(model, spec)
    d, normaliser = model.manifest.input_dims, model.manifest.normaliser
    is_mixed = spec.units == "data" and not normaliser.is_uniform
    is_inverted = spec.estimator == "inverted"
    whole = spec.includes("covariance") or d <= full_jacobian_dims
    if is_mixed and is_inverted and not whole:
        if rows * d * d > max_values:
            raise InputError(
                f"`estimator=inverted` in data units needs the whole Jacobian of every row, {d} × "
                f"{d} numbers, because the columns have different scales. That is too large for "
                f"{rows} rows: ask for `units=standard`, or for fewer rows."
            )
        whole = True
    scale = normaliser.scale if is_mixed and not is_inverted else None
    return SpectrumPlan(whole, scale, spec.rank, d if whole else block_width(d, spec.rank))


def _check_fields(model: Model, spec: MomentsSpec) -> None:
    """Refuse fields that this model does not have."""
    m = model.manifest
    fields: tuple[MomentsField, ...] = ("score", "dimension", "dimension_curve")
    for field in fields:
        if spec.includes(field) and m.covariance_scale == "relative":
            raise InputError(
                f"{m.reference} knows its covariance only up to a factor, so `{field}` is unknown; "
                "leave it out of `include`."
            )
    if spec.includes("dimension_curve") and m.noise_levels is None:
        raise InputError(
            f"{m.reference} was trained at one noise level; ask for `dimension` instead of "
            "`dimension_curve`."
        )
    if spec.includes("trust") and "jacobian" not in m.graphs:
        raise InputError(f"{m.reference} has no graph `jacobian`, which `trust` needs.")


@dataclass(frozen=True)
class Point:
    """The result at one row."""

    moments: PointMoments
    dimension: float | None
    trust: Trust | None


def _find_all(
    model: Model, x: Reals, sigma: float, spec: MomentsSpec, plan: SpectrumPlan
) -> Calls[Moments]:
    z = model.manifest.normaliser.to_model(x)
    spread = Spread(model.start_points()) if spec.estimator == "inverted" else None
    points: list[Point] = []
    for rows in split_rows(len(z), CHUNK_VALUES // (z.shape[1] * plan.width)):
        points += yield from _find_chunk(model, z[rows], sigma, spec, plan, spread)
    curve = None
    if spec.includes("dimension_curve"):
        curve = yield from _find_dimension_curve(model, z)
    return _collect(model, x, sigma, spec, points, curve)


def _find_chunk(
    model: Model,
    z: Floats,
    sigma: float,
    spec: MomentsSpec,
    plan: SpectrumPlan,
    spread: Spread | None,
) -> Calls[list[Point]]:
    """Compute a few rows, z (n, d), whose graph calls are made together."""
    level = model.noise_level(len(z), sigma)
    r, spectra = yield from _find_spectra(model, z, sigma, plan)
    trace = asymmetry = None
    unscaled, scale = spectra, plan.scale
    if spec.includes("trust"):
        trace, asymmetry = yield from find_traces_and_asymmetries(z, level)
        if scale is not None:  # the indicators are about A, not about D A D
            _, unscaled = yield from _find_spectra(model, z, sigma, replace(plan, scale=None))
            scale = None
    elif spec.includes("dimension"):
        trace = yield from find_traces(z, level)
    is_exact = plan.whole and z.shape[1] <= FULL_JACOBIAN_DIMS
    if trace is None and is_exact and model.manifest.typical:
        trace = np.array([compute_trace(spectrum, scale) for spectrum in unscaled])
    typicality, dimensions = _typicality_and_dimensions(model, z, r, sigma, spec, trace)
    points = []
    for i, spectrum in enumerate(unscaled):
        moments = _estimate(model, z[i], r[i], spectra[i], sigma, spec, plan, spread)
        below, above = measure_masses(spectrum)
        trust = Trust(
            asymmetry=None if asymmetry is None else float(asymmetry[i]),
            mass_below_zero=below,
            mass_above_one=above if scale is None else None,
            clipped=count_clipped(spectrum, spec.estimator),
            shrunk=moments.shrunk,
            typicality=typicality[i],
            exact=is_exact,
        )
        shows_trust = spec.includes("trust") or trust.warnings
        points.append(Point(moments, dimensions[i], trust if shows_trust else None))
    return points


def _find_spectra(
    model: Model, z: Floats, sigma: float, plan: SpectrumPlan
) -> Calls[tuple[Floats, list[Spectrum]]]:
    """Return r(z) (n, d) and the eigenpairs at every row."""
    level = model.noise_level(len(z), sigma)
    if plan.whole:
        return (yield from whole_spectra(z, level, plan.scale))
    r = (yield Call("reconstruct", {"x": z, **level}))["mean"]
    # With r - z in the space, it contains conjugate-gradient steps towards (I - A)⁻¹ (r - z), which
    # the inverted mean needs.
    toward = r.astype(np.float64) - z
    return r, (yield from leading_spectra(z, level, plan.rank, toward, plan.scale))


def _find_dimension_curve(model: Model, z: Floats) -> Calls[tuple[Doubles, Doubles]]:
    """Return the trained noise levels (l,) and the local dimension at each; (n, l)."""
    levels = model.manifest.noise_levels
    assert levels is not None  # by _check_fields
    sigmas = np.geomspace(*levels, LEVELS).clip(*levels)
    columns = []
    for sigma in sigmas.tolist():
        column = []
        for rows in split_rows(len(z), CHUNK_VALUES // make_probes(z.shape[1]).size):
            level = model.noise_level(len(z[rows]), sigma)
            r = (yield Call("reconstruct", {"x": z[rows], **level}))["mean"]
            trace = yield from find_traces(z[rows], level)
            column.append(compute_dimension(z[rows], r, model.alpha(sigma), trace))
        columns.append(np.concatenate(column))
    return sigmas, np.stack(columns, axis=1)


def _typicality_and_dimensions(
    model: Model, z: Floats, r: Floats, sigma: float, spec: MomentsSpec, trace: Doubles | None
) -> tuple[list[float | None], list[float | None]]:
    """Return both for every row, None if unknown or not included."""
    m, alpha = model.manifest, model.alpha(sigma)
    typicality: list[float | None] = [None] * len(z)
    dimensions: list[float | None] = [None] * len(z)
    # The percentiles were measured at `moments_sigma` and mean nothing at another level.
    if trace is not None and m.typical and sigma == m.moments_sigma:
        statistics = compute_statistic(z, r, alpha, trace)
        typicality = [find_percentile(t, m.typical) for t in statistics]
    if trace is not None and spec.includes("dimension"):
        dimensions = compute_dimension(z, r, alpha, trace).tolist()
    return typicality, dimensions


def _estimate(
    model: Model,
    z: Floats,
    r: Floats,
    spectrum: Spectrum,
    sigma: float,
    spec: MomentsSpec,
    plan: SpectrumPlan,
    spread: Spread | None,
) -> PointMoments:
    """Return the moments at one row, in the units of the spec, with every pair of the spectrum."""
    normaliser, alpha = model.manifest.normaliser, model.alpha(sigma)
    if plan.scale is not None:
        return estimate_scaled_moments(z, r, spectrum, alpha, normaliser)
    moments = estimate_moments(z, r, spectrum, alpha, spec.estimator, spread)
    return convert_to_data_units(moments, normaliser) if spec.units == "data" else moments


def _collect(
    model: Model,
    x: Reals,
    sigma: float,
    spec: MomentsSpec,
    points: Sequence[Point],
    curve: tuple[Doubles, Doubles] | None,
) -> Moments:
    """Stack the fields of all rows that the spec includes."""
    m, k = model.manifest, spec.rank
    include = spec.include
    if include is None:
        is_known = m.covariance_scale == "absolute"
        include = DEFAULT_FIELDS if is_known else DEFAULT_FIELDS - {"score"}
    rows = [point.moments for point in points]
    trust = [point.trust for point in points]

    def stack(field: MomentsField, values: Any) -> Doubles | None:
        return np.stack(list(values)) if field in include else None

    return Moments(
        m.reference,
        spec.estimator,
        spec.units,
        m.covariance_scale,
        sigma,
        x,
        mean=stack("mean", (row.mean for row in rows)),
        eigenvalues=stack("tangents", (row.eigenvalues[:k] for row in rows)),
        tangents=stack("tangents", (row.tangents[:k] for row in rows)),
        score=stack("score", (row.score for row in rows)),
        covariance=stack("covariance", (row.covariance() for row in rows)),
        dimension=stack("dimension", (np.asarray(p.dimension, np.float64) for p in points)),
        dimension_curve=curve,
        trust=trust if any(trust) else None,
    )
