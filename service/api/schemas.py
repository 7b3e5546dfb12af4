"""The shapes of requests and answers: what OpenAPI shows, and what parameters are checked by.

Rows of numbers are not checked here but in encodings, because pydantic takes its time with each.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from service.api.encodings import BASE64URL

Part = Literal["mean", "tangents", "covariance", "score"]
Row = list[float]
Point = Annotated[Row, Field(min_length=1)]
Points = Annotated[list[Point], Field(min_length=1)]
Rows = list[Row]

CHAIN = r"^[0-9a-f]{32}$"
NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
MODEL = "`name` for its newest version, or `name@version`; left out: the default model"
SIGMA = (
    "the noise level to work at, in the model's units (see `noise_levels` of the model); "
    "only for models that were trained for a range of levels"
)


def _whole(value: object) -> object:
    """1.0 is an integer in JSON, and some languages write it so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)


def _words(value: object) -> object:
    """`mean,tangents` as well as a list of both."""
    parts = value if isinstance(value, list) else [value]
    return [w for p in parts for w in (p.split(",") if isinstance(p, str) else [p])]


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
        Field(ge=1, le=1_000_000, description="eigenpairs to give, at most one a column"),
        WHOLE,
    ] = 8
    estimator: Annotated[
        Literal["asymptotic", "inverted"],
        Field(
            description="`asymptotic`: mean r(x), covariance αA, the posterior of a clean point "
            "given the noisy x; `inverted`: of the data itself around x, noise taken out"
        ),
    ] = "asymptotic"
    include: Annotated[
        list[Part],
        FailFast(),
        BeforeValidator(_words, json_schema_input_type=list[Part]),
        Field(min_length=1, description="what to give; `tangents` come with their `eigenvalues`"),
    ] = ["mean", "tangents", "score"]


class MomentsQuery(MomentsParameters):
    """GET /moments: one point, written in the query."""

    x: Annotated[
        str | None,
        Field(
            description="the point: numbers with commas between",
            json_schema_extra={"pattern": f"^{NUMBER}(,{NUMBER})*$"},
        ),
    ] = None
    x_b64: Annotated[
        str | None,
        Field(
            description="or the point as little-endian float32 in base64url",
            json_schema_extra={"pattern": f"^{BASE64URL.pattern}$"},
        ),
    ] = None
    chain: Annotated[
        str | None,
        Field(
            description="or where a walker of this chain stands",
            json_schema_extra={"pattern": CHAIN},
        ),
    ] = None
    walker: Annotated[int, Field(ge=0, le=1_000_000, description="which one of the chain's")] = 0


class ReconstructRequest(Parameters):
    x: Annotated[Points, Field(description="rows in the units of the data")]


class MomentsRequest(MomentsParameters):
    x: Annotated[Points, Field(description="points in the units of the data")]


class ReconstructAnswer(BaseModel):
    model: Annotated[str, Field(description="`name@version` that answered")]
    reconstruction: Annotated[Rows, Field(description="r(x) of every row")]
    error: Annotated[
        Row,
        Field(description="root mean square of r(x) - x over a row, in the units of the data"),
    ]


class _Moments(BaseModel):
    model: Annotated[str, Field(description="`name@version` that answered")]
    estimator: Literal["asymptotic", "inverted"]
    covariance_scale: Annotated[
        Literal["absolute", "relative"],
        Field(description="`relative`: eigenvalues and covariance are right up to one factor"),
    ]
    sigma: Annotated[float, Field(description="the noise level, in the model's units")]


class MomentsAnswer(_Moments):
    """Everything in the units of the data, at one point."""

    x: Row
    mean: Annotated[Row | None, Field(description="local mean")] = None
    eigenvalues: Annotated[
        Row | None, Field(description="of the local covariance, largest first")
    ] = None
    tangents: Annotated[
        Rows | None, Field(description="k × d: unit eigenvectors, the largest component positive")
    ] = None
    score: Annotated[Row | None, Field(description="gradient of the smoothed log density")] = None
    covariance: Annotated[Rows | None, Field(description="d × d, of all eigenpairs")] = None


class MomentsAnswers(_Moments):
    """The same with a leading axis, one entry a point."""

    x: Rows
    mean: Rows | None = None
    eigenvalues: Rows | None = None
    tangents: list[Rows] | None = None
    score: Rows | None = None
    covariance: list[Rows] | None = None


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
    sigma: float
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
