"""The requests and responses of /sample and /chains, and the parts of a stream of samples."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from localmoments.chain import MOST_FLOOR, MOST_SEED, STEPS
from localmoments.chain_state import Emission
from service.chains.spec import CHAIN_ID, THIN, WALKERS
from service.http.fields import MODEL, WHOLE, Point, Points, Row, Rows, Timeout, split_commas
from service.http.problems import Problem

MAX_STEPS = 10**9
SCALE = "Step size. A list is a schedule: step n uses entry n modulo its length."

ChainId = Annotated[str, Field(pattern=CHAIN_ID)]
Scale = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Schedule = Annotated[list[Scale], Field(min_length=1, max_length=1000)]
MaskRow = (
    Annotated[list[bool], Field(min_length=1)] | Annotated[list[Literal[0, 1]], Field(min_length=1)]
)
Mask = MaskRow | Annotated[list[MaskRow], Field(min_length=1)]
Std = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]


def _parse_mask(value: object) -> object:
    """Check a whole mask at once: pydantic would report each of possibly millions of entries."""
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        rows = [_parse_mask_row(row) for row in value]
        if len({len(row) for row in rows}) > 1:
            raise ValueError("every row must have the same length")
        return rows
    return _parse_mask_row(value)


def _parse_mask_row(value: object) -> list[bool]:
    if isinstance(value, list) and value:
        kinds = set(map(type, value))
        if kinds <= {bool} or (kinds <= {int, float} and set(value) <= {0, 1}):
            return [entry == 1 for entry in value]
    raise ValueError("must be a list of true/false or 1/0, or one such list per walker")


class _Sample(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str | None, Field(description=MODEL)] = None
    chain: Annotated[
        ChainId | None, Field(description="Id of a chain to resume. Default: create a new chain.")
    ] = None
    from_step: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_STEPS,
            description="Resume the chain from this step, which may be any step since its last "
            "call started. To get a lost response again, send the last step that you received: "
            "the samples are the same.",
        ),
        WHOLE,
    ] = None
    walkers: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000_000,
            description="Number of walkers that run side by side. Default: the number of "
            f"start points if `start` names points or a chain, otherwise {WALKERS}.",
        ),
        WHOLE,
    ] = None
    steps: Annotated[
        int, Field(ge=1, le=MAX_STEPS, description="Number of steps after burn-in."), WHOLE
    ] = STEPS
    thin: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_STEPS,
            description=f"Keep every n-th step after burn-in. Default: {THIN}, or `steps` if the "
            "first call is shorter.",
        ),
        WHOLE,
    ] = None
    burn_in: Annotated[
        int | None,
        Field(ge=0, le=MAX_STEPS, description="Number of first steps to discard. Default: 0."),
        WHOLE,
    ] = None
    kernel: Annotated[
        str | None,
        Field(description="One of the model's kernels. Default: the model's `default_kernel`."),
    ] = None
    floor: Annotated[
        float | None,
        Field(
            ge=0,
            le=MOST_FLOOR,
            allow_inf_nan=False,
            description="Standard deviation of isotropic noise added to each step, in the model's "
            "units.",
        ),
    ] = None
    seed: Annotated[
        int | None,
        Field(
            ge=0,
            le=MOST_SEED,
            description="Seed of the random numbers: the same seed gives the same samples. "
            "Default: a random seed.",
        ),
        WHOLE,
    ] = None
    metropolis: Annotated[
        bool | None,
        Field(
            description="Accept or reject each step, which corrects the bias of long steps (exact "
            "where the score is linear). For the kernels `walkjump` and `moment`. The response has "
            "the rate as `acceptance`."
        ),
    ] = None
    emit: Annotated[
        Emission | None,
        Field(
            description="Return the local mean of each kept step, or the noisy state. Default: "
            "the model's `default_emit`."
        ),
    ] = None
    stream: Annotated[bool, Field(description="Send samples as they are made.")] = False
    timeout_ms: Annotated[
        Timeout,
        Field(
            description="Time limit in milliseconds. A stream then ends with a `resume` request, "
            "any other call gets 408. The chain is kept."
        ),
    ] = None


class SampleQuery(_Sample):
    """Parameters that fit into a query, next to a JSON body or a `.npy` body of start points."""

    scale: Annotated[
        Schedule | None,
        BeforeValidator(split_commas, json_schema_input_type=Schedule),
        Field(description=SCALE),
    ] = None
    start: Annotated[
        Literal["data", "noise"] | None,
        Field(description="Start at the model's start points or in noise. Default: `data`."),
    ] = None


class FromPoints(BaseModel):
    model_config = ConfigDict(extra="forbid")

    points: Annotated[Points, Field(description="One point for all walkers, or one per walker.")]


class FromChain(BaseModel):
    model_config = ConfigDict(extra="forbid")

    chain: Annotated[ChainId, Field(description="Start where this chain is now.")]


class Clamp(BaseModel):
    """Known columns. The others are drawn given them, with kernel `gibbs` or `moment`."""

    model_config = ConfigDict(extra="forbid")

    mask: Annotated[
        list[bool] | list[list[bool]],
        BeforeValidator(_parse_mask, json_schema_input_type=Mask),
        Field(description="True or 1 for each known column: one row, or one per walker."),
    ]
    values: Annotated[
        Point | Points,
        Field(
            description="Values of the known columns, in the units of the data: one row, or one "
            "per walker. Entries of unknown columns are ignored."
        ),
    ]
    std: Annotated[
        Std | Point | Points | None,
        Field(
            description="Standard deviation of the known values, in the units of the data: a "
            "number, a row, or one row per walker. Default: 0, which means exactly known."
        ),
    ] = None


class SampleRequest(_Sample):
    scale: Annotated[Scale | Schedule | None, Field(description=SCALE)] = None
    start: Annotated[
        Literal["data", "noise"] | FromPoints | FromChain | None,
        Field(description="Where the walkers start. Default: `data`, the model's start points."),
    ] = None
    clamp: Clamp | None = None


class _Chain(BaseModel):
    chain: Annotated[str, Field(description="Id of the chain.")]
    model: Annotated[str, Field(description="`name@version` of the model.")]
    kernel: str
    scale: Annotated[float | Row, Field(description="Step size, or a schedule of step sizes.")]
    floor: Annotated[float, Field(description="Standard deviation of the added noise.")]
    seed: int
    walkers: int
    burn_in: int
    thin: int
    emit: Emission
    metropolis: Annotated[
        bool | None, Field(description="True if steps are accepted or rejected.")
    ] = None


class SampleHead(_Chain):
    """Everything but the samples: the first part of a stream."""

    from_step: Annotated[int, Field(description="Step at which this call starts.")]
    step: Annotated[int, Field(description="Step at which this call ends and commits.")]
    shape: Annotated[list[int], Field(description="Shape of all samples: kept × walkers × d.")]


class SampleAnswer(SampleHead):
    """The state of the chain after this call, and its samples."""

    acceptance: Annotated[
        float | None,
        Field(description="Share of accepted steps in this call, 0 to 1; only with `metropolis`."),
    ] = None
    samples: Annotated[
        list[Rows], Field(description="Rows of each kept step, in the units of the data.")
    ]


class ForkRequest(BaseModel):
    """What the new chain does differently; by default nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: Annotated[
        int | None,
        Field(ge=0, le=MOST_SEED, description="Another seed."),
        WHOLE,
    ] = None
    scale: Annotated[Scale | Schedule | None, Field(description=SCALE)] = None
    floor: Annotated[
        float | None,
        Field(ge=0, le=MOST_FLOOR, allow_inf_nan=False, description="Another `floor`."),
    ] = None
    kernel: Annotated[
        str | None, Field(description="Another kernel that has the same `space`.")
    ] = None
    from_step: Annotated[
        int | None,
        Field(ge=0, le=MAX_STEPS, description="Fork at this earlier step."),
        WHOLE,
    ] = None


class ChainAnswer(_Chain):
    step: Annotated[int, Field(description="The last committed step.")]
    possible: Annotated[
        dict[str, int], Field(description="`first` and `last` step that `from_step` may name.")
    ]
    busy: Annotated[bool, Field(description="True while a call is moving the chain.")]
    created: Annotated[str, Field(description="Time of creation: UTC, ISO 8601.")]
    expires: Annotated[str, Field(description="Time at which an unused chain is deleted.")]
    x: Annotated[Rows, Field(description="The walkers' points, in the units of the data.")]


class StreamSample(BaseModel):
    """A kept step, sent after its commit."""

    step: int
    x: Annotated[Rows, Field(description="Walkers × d.")]


class StreamEnd(BaseModel):
    done: Literal[True]
    step: int
    acceptance: Annotated[
        float | None, Field(description="Share of accepted steps; only with `metropolis`.")
    ] = None


class ResumeRequest(BaseModel):
    """The body of the /sample request that returns the remaining samples."""

    chain: str
    from_step: int
    steps: int
    thin: Annotated[int | None, Field(description="If it differs from the chain's.")] = None
    emit: Annotated[str | None, Field(description="If it differs from the chain's.")] = None


class StreamBreak(BaseModel):
    """The service is shutting down, or the time limit is reached."""

    done: Literal[False]
    step: Annotated[int, Field(description="The last committed step.")]
    resume: Annotated[ResumeRequest, Field(description="Send this to `/sample` to continue.")]


class StreamError(BaseModel):
    error: Problem
    chain: str
    step: Annotated[int, Field(description="The last committed step.")]


def _describe_stream() -> tuple[dict[str, Any], dict[str, Any]]:
    """Describe NDJSON and SSE streams for OpenAPI; service.http.openapi moves the `$defs`."""
    parts: Any = SampleHead | StreamSample | StreamEnd | StreamBreak | StreamError
    schema = TypeAdapter(parts).json_schema(ref_template="#/components/schemas/{model}")
    definitions = {**schema.pop("$defs"), "StreamPart": schema}
    part = {"$ref": "#/components/schemas/StreamPart"}
    data = {"contentMediaType": "application/json", "contentSchema": part}
    event = {"type": "string", "anyOf": [data, {"const": "[DONE]"}]}
    events = {"type": "object", "required": ["data"], "properties": {"data": event}}
    return {"itemSchema": {**part, "$defs": definitions}}, {"itemSchema": events}


LINES, EVENTS = _describe_stream()
