"""The shapes of requests and answers: what OpenAPI shows, and what parameters are checked by.

Rows of numbers are not checked here but in encodings, because pydantic takes its time with each.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from localmoments.moments import MomentsField
from service.http.encodings import BASE64URL

Row = list[float]
Point = Annotated[Row, Field(min_length=1)]
Points = Annotated[list[Point], Field(min_length=1)]
Rows = list[Row]

CHAIN = r"^[0-9a-f]{32}$"
NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
MODEL = "`name` for its newest version, or `name@version`. Default: the default model."
SIGMA = (
    "Noise level, in the model's units, within `noise_levels` of the model. Only for models that "
    "were trained for a range of levels. Default: `moments_sigma` of the model, the level for "
    "clean rows."
)
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


def _whole(value: object) -> object:
    """1.0 is an integer in JSON, and some languages write it so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)


def _words(value: object) -> object:
    """`mean,tangents` as well as a list of both."""
    if value is None:
        return None
    parts = value if isinstance(value, list) else [value]
    return [w for p in parts for w in (p.split(",") if isinstance(p, str) else [p])]


Parts = Annotated[list[MomentsField], Field(min_length=1, fail_fast=True)]
Timeout = Annotated[
    int | None,
    Field(ge=1, le=3_600_000, description="give up after so many milliseconds, with a 408"),
    WHOLE,
]


class Parameters(BaseModel):
    """What both kinds of request share; a name that is not listed is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str | None, Field(description=MODEL)] = None
    sigma: Annotated[float | None, Field(gt=0, allow_inf_nan=False, description=SIGMA)] = None
    timeout_ms: Timeout = None


class MomentsParameters(Parameters):
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
        BeforeValidator(_words, json_schema_input_type=Parts | None),
        Field(description=INCLUDE),
    ] = None


class MomentsQuery(MomentsParameters):
    """GET /moments: one point, written in the query."""

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
            json_schema_extra={"pattern": CHAIN},
        ),
    ] = None
    walker: Annotated[int, Field(ge=0, le=1_000_000, description="Which walker of `chain`.")] = 0


class ReconstructRequest(Parameters):
    x: Annotated[Points, Field(description="Rows in the units of the data.")]


class MomentsRequest(MomentsParameters):
    x: Annotated[Points, Field(description="Points in the units of the data.")]


class ReconstructAnswer(BaseModel):
    model: Annotated[str, Field(description="`name@version` of the model that answered.")]
    sigma: Annotated[float, Field(description="Noise level used, in the model's units.")]
    reconstruction: Annotated[
        Rows, Field(description="r(x) of every row, in the units of the data.")
    ]
    error: Annotated[
        Row,
        Field(
            description="Root mean square of r(x) - x over the columns of a row, each column "
            "divided by its scale (1 is one standard deviation, or the pixel range)."
        ),
    ]


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
        Field(description="On request, and when a value that is known anyway is out of range."),
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


class Refused(BaseModel):
    """A model that is not served."""

    model: str
    reason: Annotated[str, Field(description="what is wrong with it, in a sentence")]


class Kernel(BaseModel):
    """A way to walk from sample to sample."""

    space: Annotated[Literal["input", "hidden"], Field(description="where its state lives")]
    scale: Annotated[float, Field(description="size of its steps, if none is asked for")]


class ModelSummary(BaseModel):
    """What a caller must know before the first request."""

    reference: Annotated[str, Field(description="`name@version`")]
    name: str
    version: str
    versions: Annotated[list[str], Field(description="all that are served, newest first")]
    default: Annotated[bool, Field(description="the one that answers if none is named")]
    kind: Literal["cae", "dae", "rcae"]
    input_dims: Annotated[int, Field(description="numbers in a row")]
    image: Annotated[list[int] | None, Field(description="a row's shape as an image")]
    noise_levels: Annotated[list[float] | None, Field(description="range of `sigma`, if any")]
    kernels: dict[str, Kernel]
    default_kernel: str
    provider: Annotated[str, Field(description="what computes: onnxruntime's provider")]


class ModelDetail(ModelSummary):
    """All that is known about a model."""

    loss: str
    alpha: float
    sigma: Annotated[float, Field(description="Noise level of chains.")]
    moments_sigma: Annotated[
        float, Field(description="Noise level for clean rows: reconstruction and moments.")
    ]
    covariance_scale: Literal["absolute", "relative"]
    hidden_dims: int
    features: Annotated[list[str] | None, Field(description="names of the columns")]
    low: Annotated[
        Row,
        Field(
            description="least value of every column among the start points, in the data's units"
        ),
    ]
    high: Annotated[Row, Field(description="largest value, likewise")]
    default_emit: Literal["mean", "noisy"]
    figures: Annotated[dict[str, Any], Field(description="how it scored on held-out rows")]
    data: dict[str, Any]
    libraries: dict[str, str]
    created: str
    card: Annotated[str, Field(description="the model's card, as Markdown")]
    refused: Annotated[list[Refused], Field(description="versions of it that are not served")]


class Models(BaseModel):
    default: Annotated[str | None, Field(description="`name@version`, if there is any")]
    models: list[ModelSummary]
    refused: list[Refused]


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    ready: Literal[True] = True
    models: Annotated[list[str], Field(description="`name@version` of all newest ones")]


class Fault(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: Annotated[str, Field(description="what is wrong, in a sentence")]
    error: Annotated[str, Field(description="the same again, for clients that look here")]
    request_id: str
    errors: Annotated[list[Fault] | None, Field(description="parameter by parameter")] = None
