"""The requests and responses of /moments, as OpenAPI shows them."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from localmoments.moments import MomentsField
from service.chains.spec import CHAIN_ID
from service.http.encodings import BASE64URL
from service.http.fields import WHOLE, Points, Row, Rows, split_commas
from service.routes.reconstruct import Parameters

NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
ESTIMATOR = (
    "`asymptotic`: mean r(x) and covariance αA, the posterior of a clean point given the noisy x. "
    "`inverted`: mean and covariance of the data around x, with the noise removed, bounded by the "
    "data's own spread."
)
UNITS = (
    "`data`: the units of your data. `standard`: the model's own units, in which each column is "
    "shifted and divided by its scale; `x` is returned as you sent it."
)
INCLUDE = (
    "Parts of the answer. Default: `mean`, `tangents` (with their `eigenvalues`), and `score` "
    "where its scale is known. `trust` says whether the numbers can be relied on. `dimension` is "
    "the local intrinsic dimension; `dimension_curve` has it over the model's noise levels."
)


Parts = Annotated[list[MomentsField], Field(min_length=1, fail_fast=True)]


class MomentsParameters(Parameters):
    """Parameters of GET and POST /moments."""

    rank: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="Number of eigenpairs, at most one per column."),
        WHOLE,
    ] = 8
    estimator: Annotated[Literal["asymptotic", "inverted"], Field(description=ESTIMATOR)] = (
        "asymptotic"
    )
    units: Annotated[Literal["data", "standard"], Field(description=UNITS)] = "data"
    include: Annotated[
        Parts | None,
        BeforeValidator(split_commas, json_schema_input_type=Parts | None),
        Field(description=INCLUDE),
    ] = None


class MomentsQuery(MomentsParameters):
    """Parameters of GET /moments: one point, in the query."""

    x: Annotated[
        str | None,
        Field(
            description="The point: numbers separated by commas.",
            json_schema_extra={"pattern": f"^{NUMBER}(,{NUMBER})*$"},
        ),
    ] = None
    x_b64: Annotated[
        str | None,
        Field(
            description="The point as little-endian float32 in base64url.",
            json_schema_extra={"pattern": f"^{BASE64URL.pattern}$"},
        ),
    ] = None
    chain: Annotated[
        str | None,
        Field(
            description="Id of a chain: the point is where one of its walkers is.",
            json_schema_extra={"pattern": CHAIN_ID},
        ),
    ] = None
    walker: Annotated[int, Field(ge=0, le=1_000_000, description="Which walker of `chain`.")] = 0


class MomentsRequest(MomentsParameters):
    x: Annotated[Points, Field(description="Points in the units of the data.")]


class Trust(BaseModel):
    """Whether the numbers at a point can be relied on."""

    asymmetry: Annotated[
        float | None,
        Field(description="‖J - Jᵀ‖/‖J + Jᵀ‖ (Frobenius); 0 for a posterior mean. On request."),
    ] = None
    mass_below_zero: Annotated[
        float | None,
        Field(
            description="Σ max(-λ, 0)/Σ|λ| over the eigenvalues λ of A = (J + Jᵀ)/2. Unless you "
            "ask for `trust`, in data units, those of D A D."
        ),
    ] = None
    mass_above_one: Annotated[
        float | None, Field(description="Σ max(λ - 1, 0)/Σ|λ| over the eigenvalues λ of A.")
    ] = None
    clipped: Annotated[
        int,
        Field(
            description="Eigenvalues that were replaced, of those that were found: negative ones "
            "for `asymptotic`, those of nearly 1 or more for `inverted`."
        ),
    ]
    shrunk: Annotated[
        int,
        Field(description="Directions in which `inverted` was bounded by the data's spread."),
    ]
    typicality: Annotated[
        float | None,
        Field(
            description="Percentile of ‖x - r‖² - σ² tr J among clean held-out rows. Absent if the "
            "model does not record it, or at another noise level."
        ),
    ] = None
    exact: Annotated[
        bool,
        Field(
            description="True: computed from the whole Jacobian. False: estimated, norms and "
            "traces by Hutchinson's estimator with 32 fixed probes, masses from a Krylov space."
        ),
    ]
    warnings: Annotated[
        list[str], Field(description="One sentence for each value that is out of range.")
    ]


class DimensionCurve(BaseModel):
    sigma: Annotated[Row, Field(description="Noise levels, in the model's units.")]
    dimension: Annotated[Row, Field(description="Local dimension at each level.")]


class DimensionCurves(BaseModel):
    sigma: Annotated[Row, Field(description="Noise levels, in the model's units.")]
    dimension: Annotated[Rows, Field(description="Local dimension, points × levels.")]


class _Moments(BaseModel):
    model: Annotated[str, Field(description="`name@version` of the model that answered.")]
    estimator: Literal["asymptotic", "inverted"]
    units: Literal["data", "standard"]
    covariance_scale: Annotated[
        Literal["absolute", "relative"],
        Field(description="`relative`: eigenvalues and covariance are known up to one factor."),
    ]
    sigma: Annotated[float, Field(description="Noise level used, in the model's units.")]


class MomentsAnswer(_Moments):
    """Local moments at one point, in the units that you asked for."""

    x: Annotated[Row, Field(description="The point, in the units of the data.")]
    mean: Annotated[Row | None, Field(description="Local mean.")] = None
    eigenvalues: Annotated[
        Row | None, Field(description="Eigenvalues of the local covariance, largest first.")
    ] = None
    tangents: Annotated[
        Rows | None,
        Field(description="k × d: unit eigenvectors, each with its largest component positive."),
    ] = None
    score: Annotated[
        Row | None,
        Field(
            description="Gradient of the smoothed log density, (r - x)/σ². Only for models whose "
            "`covariance_scale` is `absolute`."
        ),
    ] = None
    covariance: Annotated[Rows | None, Field(description="d × d: the sum of all eigenpairs.")] = (
        None
    )
    dimension: Annotated[
        float | None,
        Field(
            description="Local intrinsic dimension tr J + ‖r - x‖²/σ². Above 128 columns tr J is "
            "estimated from 32 fixed probes."
        ),
    ] = None
    dimension_curve: Annotated[
        DimensionCurve | None, Field(description="Local dimension over noise levels.")
    ] = None
    trust: Annotated[
        Trust | None,
        Field(
            description="On request, or if an indicator that needs no extra graph call is out of "
            "range."
        ),
    ] = None


class MomentsAnswers(_Moments):
    """Local moments at many points: the same with a leading axis, one entry per point."""

    x: Rows
    mean: Rows | None = None
    eigenvalues: Rows | None = None
    tangents: list[Rows] | None = None
    score: Rows | None = None
    covariance: list[Rows] | None = None
    dimension: Row | None = None
    dimension_curve: DimensionCurves | None = None
    trust: list[Trust | None] | None = None
