"""The shapes of the protocol's requests and answers: what OpenAPI shows and heads are checked by.

Tensors' numbers are not checked here but in tensors, because pydantic takes its time with each.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.http.chain_schemas import LARGEST_SEED, MOST_STEPS, SCALE, Emission, Scale
from service.http.schemas import SIGMA, WHOLE

REALS = ("FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64",
             "UINT8", "UINT16", "UINT32", "UINT64")  # fmt: skip
Datatype = Annotated[str, Field(max_length=200, json_schema_extra={"enum": [*REALS]})]
Size = Annotated[int, Field(ge=0, le=2**31), WHOLE]
Whole = Annotated[int | None, Field(ge=0, le=MOST_STEPS), WHOLE]
Positive = Annotated[int | None, Field(ge=1, le=MOST_STEPS), WHOLE]
Number = Annotated[int, Field(ge=0, le=2**64 - 1)]
Word = Annotated[str, Field(max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class InferParameters(_Strict):
    """What a request can say beside its tensors; which apply, depends on what is asked."""

    binary_data_output: Annotated[
        bool, Field(description="outputs as bytes, but for those that say otherwise")
    ] = False
    timeout: Annotated[
        int | None,
        Field(ge=0, le=3_600_000_000, description="give up after so many microseconds; 0: never"),
        WHOLE,
    ] = None
    priority: Annotated[
        int | None, Field(ge=0, le=2**64 - 1, description="has no effect"), WHOLE
    ] = None
    sigma: Annotated[float | None, Field(gt=0, allow_inf_nan=False, description=SIGMA)] = None
    sequence_id: Annotated[
        Annotated[Number, WHOLE] | Word, Field(description="which chain; 0 and empty: none")
    ] = 0
    sequence_start: Annotated[bool, Field(description="begin a chain")] = False
    sequence_end: Annotated[bool, Field(description="end the chain after these steps")] = False
    walkers: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="chains side by side; 4 if not said"),
        WHOLE,
    ] = None  # fmt: skip
    steps: Annotated[
        Whole, Field(description="steps to walk, 100 if not said; 0 only to end a chain")
    ] = None
    thin: Annotated[
        Positive,
        Field(description="keep every so-many-th step; 10 if not said, or all of fewer steps"),
    ] = None
    burn_in: Annotated[
        Whole, Field(description="first steps of the chain that keep nothing")
    ] = None  # fmt: skip
    kernel: Annotated[str | None, Field(description="one of the model's kernels")] = None
    floor: Annotated[
        float | None,
        Field(ge=0, le=1e3, allow_inf_nan=False, description="isotropic noise of each step"),
    ] = None
    scale: Annotated[
        Scale | Annotated[str, Field(pattern=r"^[0-9.eE+-]+(,[0-9.eE+-]+)*$", max_length=20_000)]
        | None,
        Field(description=f"{SCALE}; as a text, with commas between"),
    ] = None  # fmt: skip
    seed: Annotated[
        int | None,
        Field(ge=0, le=LARGEST_SEED, description="the same seed gives the same samples"),
        WHOLE,
    ] = None
    emit: Annotated[Emission | None, Field(description="local means, or noisy samples")] = None
    start: Annotated[
        Literal["data", "noise"] | None, Field(description="where walkers begin, without `start`")
    ] = None
    from_step: Annotated[
        Whole, Field(description="go on from this step, which may be any since the last call began")
    ] = None


class InputParameters(_Strict):
    binary_data_size: Annotated[
        int | None, Field(ge=0, description="bytes of this tensor behind the head"), WHOLE
    ] = None


class OutputParameters(_Strict):
    binary_data: Annotated[bool | None, Field(description="as bytes behind the head")] = None


class _Tensor(_Strict):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    datatype: Datatype
    shape: Annotated[list[Size], Field(max_length=8)]
    data: Annotated[
        list[float | list[Any]] | None,
        Field(description="numbers row by row, flat or nested; left out where they are bytes"),
    ] = None


class InputTensor(_Tensor):
    parameters: InputParameters = InputParameters()


class RequestedOutput(_Strict):
    name: Annotated[str, Field(max_length=200)]
    parameters: OutputParameters = OutputParameters()


class InferRequest(_Strict):
    id: Annotated[Word | None, Field(description="comes back with the answer")] = None
    model_name: Annotated[Word | None, Field(description="has no effect: the path counts")] = None
    model_version: Annotated[Word | None, Field(description="has no effect")] = None
    parameters: InferParameters = InferParameters()
    inputs: Annotated[list[InputTensor], Field(max_length=16)] = []
    outputs: Annotated[
        list[RequestedOutput], Field(max_length=16, description="left out or empty: all")
    ] = []


class OutputTensor(_Tensor):
    parameters: InputParameters | None = None


class InferAnswer(_Strict):
    model_name: str
    model_version: str
    id: str | None = None
    parameters: Annotated[
        dict[str, str | int | float] | None, Field(description="of a chain: where it stands")
    ] = None
    outputs: list[OutputTensor]


class IndexRequest(_Strict):
    ready: Annotated[bool, Field(description="only what is served")] = False


class IndexEntry(BaseModel):
    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class Live(BaseModel):
    live: Literal[True] = True


class ServerReady(Live):
    ready: Literal[True] = True


class ModelReady(BaseModel):
    name: str
    ready: Literal[True] = True


class ServerMetadata(BaseModel):
    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    name: str
    datatype: str
    shape: Annotated[list[int], Field(description="-1 where any size does")]


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Reshape(BaseModel):
    shape: list[int]


class ConfiguredOutput(BaseModel):
    name: str
    data_type: Annotated[str, Field(description="`TYPE_` and the datatype")]
    dims: Annotated[list[int], Field(description="without the axis of rows, if they are batched")]
    reshape: Annotated[
        Reshape | None, Field(description="of a number a row: it has no axis of its own")
    ] = None


class ConfiguredInput(ConfiguredOutput):
    optional: bool


class Text(BaseModel):
    string_value: str


class ModelConfiguration(BaseModel):
    """Of Triton's configuration, what is known here."""

    name: str
    platform: str
    backend: str
    max_batch_size: Annotated[int, Field(description="most rows in one request; 0: no rows")]
    input: list[ConfiguredInput]
    output: list[ConfiguredOutput]
    parameters: dict[str, Text]
    dynamic_batching: dict[str, Any] | None = None
    sequence_batching: dict[str, Any] | None = None
