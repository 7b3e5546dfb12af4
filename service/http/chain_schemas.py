"""The shapes of requests and answers about chains."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from service.http.schemas import CHAIN, MODEL, WHOLE, Point, Points, Row, Rows, Timeout

LARGEST_SEED = 2**63 - 1
MOST_STEPS = 10**9
SCALE = "size of the steps; a list is gone through step by step, over and over"

ChainId = Annotated[str, Field(pattern=CHAIN)]
Scale = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Schedule = Annotated[list[Scale], Field(min_length=1, max_length=1000)]
MaskRow = (
    Annotated[list[bool], Field(min_length=1)] | Annotated[list[Literal[0, 1]], Field(min_length=1)]
)
Mask = MaskRow | Annotated[list[MaskRow], Field(min_length=1)]
Std = Annotated[float, Field(ge=0, le=1e30, allow_inf_nan=False)]
Emission = Literal["mean", "noisy"]


def _numbers(value: object) -> object:
    """`0.5,1` in a query, where a list stands for a schedule; a number alone is one of one."""
    parts = value if isinstance(value, list) else [value]
    return [w for p in parts for w in (p.split(",") if isinstance(p, str) else [p])]


def _known(value: object) -> object:
    """All at once: pydantic would tell of each entry that is wrong, and there may be millions."""
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        rows = [_known_row(row) for row in value]
        if len({len(row) for row in rows}) > 1:
            raise ValueError("every row must have the same length")
        return rows
    return _known_row(value)


def _known_row(value: object) -> list[bool]:
    if isinstance(value, list) and value:
        kinds = set(map(type, value))
        if kinds <= {bool} or (kinds <= {int, float} and set(value) <= {0, 1}):
            return [entry == 1 for entry in value]
    raise ValueError("must be a list of true and false, or of 1 and 0, or one such list a walker")


class _Sample(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str | None, Field(description=MODEL)] = None
    chain: Annotated[
        ChainId | None, Field(description="go on with this chain; left out: a new one")
    ] = None
    from_step: Annotated[
        int | None,
        Field(
            ge=0,
            le=MOST_STEPS,
            description="go on from this step of the chain, which may be any since the last call "
            "began: name the last step that you have, and a lost answer comes again, the same",
        ),
        WHOLE,
    ] = None
    walkers: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="chains side by side; 4 if not said"),
        WHOLE,
    ] = None
    steps: Annotated[
        int, Field(ge=1, le=MOST_STEPS, description="steps to walk, after any burn-in"), WHOLE
    ] = 100
    thin: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_STEPS,
            description="keep every so-many-th step, counted from the end of the burn-in; 10 if "
            "not said, or all the steps of a first call that has fewer",
        ),
        WHOLE,
    ] = None
    burn_in: Annotated[
        int | None,
        Field(ge=0, le=MOST_STEPS, description="first steps of the chain that keep nothing"),
        WHOLE,
    ] = None
    kernel: Annotated[str | None, Field(description="one of the model's kernels")] = None
    floor: Annotated[
        float | None,
        Field(
            ge=0,
            le=1e3,
            allow_inf_nan=False,
            description="standard deviation of isotropic noise added to each step, in the "
            "model's units",
        ),
    ] = None
    seed: Annotated[
        int | None,
        Field(ge=0, le=LARGEST_SEED, description="the same seed gives the same samples"),
        WHOLE,
    ] = None
    metropolis: Annotated[
        bool | None,
        Field(
            description="Accept or reject each step, which corrects the bias of long steps (exact "
            "where the score is linear). For the kernels `walkjump` and `moment`. The answer has "
            "the rate as `acceptance`."
        ),
    ] = None
    emit: Annotated[
        Emission | None,
        Field(description="give the local mean, or the noisy sample; if not said, as the model"),
    ] = None
    stream: Annotated[bool, Field(description="send samples as they are made")] = False
    timeout_ms: Annotated[
        Timeout,
        Field(
            description="stop after so many milliseconds: a stream ends with what to resume, "
            "anything else is a 408; the chain is kept either way"
        ),
    ] = None


class SampleQuery(_Sample):
    """What fits into a query; with it goes a `.npy` body of start points, or a JSON body."""

    scale: Annotated[
        Schedule | None,
        BeforeValidator(_numbers, json_schema_input_type=Schedule),
        Field(description=SCALE),
    ] = None
    start: Annotated[
        Literal["data", "noise"] | None,
        Field(description="begin at the model's start points, or in noise; `data` if not said"),
    ] = None


class FromPoints(BaseModel):
    model_config = ConfigDict(extra="forbid")

    points: Annotated[Points, Field(description="one, or one a walker")]


class FromChain(BaseModel):
    model_config = ConfigDict(extra="forbid")

    chain: Annotated[ChainId, Field(description="begin where this chain stands")]


class Clamp(BaseModel):
    """Columns that are known. The others are drawn given them, with kernel `gibbs` or `moment`."""

    model_config = ConfigDict(extra="forbid")

    mask: Annotated[
        list[bool] | list[list[bool]],
        BeforeValidator(_known, json_schema_input_type=Mask),
        Field(
            description="true, or 1, where a column is known; one row, or one for every walker",
        ),
    ]
    values: Annotated[
        Point | Points,
        Field(
            description="a row, or one for every walker; only its known columns are read",
        ),
    ]
    std: Annotated[
        Std | Point | Points | None,
        Field(
            description="known up to this standard deviation, in the units of the data: a number, "
            "a row, or a row for every walker; left out, or 0: known exactly",
        ),
    ] = None


class SampleRequest(_Sample):
    scale: Annotated[
        Scale | Schedule | None,
        Field(description=SCALE),
    ] = None
    start: Annotated[
        Literal["data", "noise"] | FromPoints | FromChain | None,
        Field(description="where the walkers begin; `data` if not said"),
    ] = None
    clamp: Clamp | None = None


class _Chain(BaseModel):
    chain: Annotated[str, Field(description="the chain's id, to go on with")]
    model: Annotated[str, Field(description="`name@version`")]
    kernel: str
    scale: Annotated[float | Row, Field(description="a number, or a schedule")]
    floor: float
    seed: int
    walkers: int
    burn_in: int
    thin: int
    emit: Emission
    metropolis: Annotated[bool | None, Field(description="where steps are corrected")] = None


class SampleHead(_Chain):
    """All but the samples; the first part of a stream."""

    from_step: Annotated[int, Field(description="where this call began")]
    step: Annotated[int, Field(description="where it ends, and is committed then")]
    shape: Annotated[list[int], Field(description="kept × walkers × d")]


class SampleAnswer(SampleHead):
    """Where the chain stands now, and what it gave on its way there."""

    acceptance: Annotated[
        float | None,
        Field(description="accepted proposals of this call, 0 to 1; with `metropolis` only"),
    ] = None
    samples: Annotated[list[Rows], Field(description="every kept step's rows")]


class ForkRequest(BaseModel):
    """What the branch does differently; left out: nothing, so that it walks the same way."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: Annotated[int | None, Field(ge=0, le=LARGEST_SEED), WHOLE] = None
    scale: Annotated[Scale | Schedule | None, Field()] = None
    floor: Annotated[float | None, Field(ge=0, le=1e3, allow_inf_nan=False)] = None
    kernel: Annotated[str | None, Field(description="another kernel of the same space")] = None
    from_step: Annotated[
        int | None,
        Field(ge=0, le=MOST_STEPS, description="branch off at this earlier step"),
        WHOLE,
    ] = None


class ChainAnswer(_Chain):
    step: Annotated[int, Field(description="the last step that is committed")]
    possible: Annotated[dict[str, int], Field(description="`first` and `last` from_step")]
    busy: Annotated[bool, Field(description="a call is walking it at this moment")]
    created: Annotated[str, Field(description="UTC, ISO 8601")]
    expires: Annotated[str, Field(description="if it is not used before")]
    x: Annotated[Rows, Field(description="where the walkers stand, in the units of the data")]
