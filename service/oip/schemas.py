"""Requests and responses of the protocol, as validated and as shown in OpenAPI.

The values of tensors are not validated here but in tensors.py, because pydantic is slow on large
lists of numbers.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.http.fields import SIGMA, WHOLE

DATATYPES = ("FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64",
             "UINT8", "UINT16", "UINT32", "UINT64")  # fmt: skip
MAX_TIMEOUT = 3_600_000_000  # microseconds: one hour

Datatype = Annotated[str, Field(max_length=200, json_schema_extra={"enum": [*DATATYPES]})]
Size = Annotated[int, Field(ge=0, le=2**31), WHOLE]
ShortText = Annotated[str, Field(max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class InferParameters(_Strict):
    binary_data_output: Annotated[
        bool, Field(description="Return outputs as bytes unless an output says otherwise.")
    ] = False
    timeout: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_TIMEOUT,
            description="Deadline in microseconds, rounded up to milliseconds. 0: no deadline.",
        ),
        WHOLE,
    ] = None
    priority: Annotated[
        int | None, Field(ge=0, le=2**64 - 1, description="Accepted and ignored."), WHOLE
    ] = None
    sigma: Annotated[float | None, Field(gt=0, allow_inf_nan=False, description=SIGMA)] = None


class InputParameters(_Strict):
    binary_data_size: Annotated[
        int | None,
        Field(ge=0, description="Number of bytes of this tensor after the JSON header."),
        WHOLE,
    ] = None


class OutputParameters(_Strict):
    binary_data: Annotated[
        bool | None, Field(description="Return this output as bytes after the JSON header.")
    ] = None


class _Tensor(_Strict):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    datatype: Datatype
    shape: Annotated[list[Size], Field(max_length=8)]
    data: Annotated[
        list[float | list[Any]] | None,
        Field(description="Values in row-major order, flat or nested. Omit it to send bytes."),
    ] = None


class InputTensor(_Tensor):
    parameters: InputParameters = InputParameters()


class RequestedOutput(_Strict):
    name: Annotated[str, Field(max_length=200)]
    parameters: OutputParameters = OutputParameters()


class InferRequest(_Strict):
    id: Annotated[
        ShortText | None, Field(description="Identifier that the response repeats.")
    ] = None  # fmt: skip
    model_name: Annotated[
        ShortText | None, Field(description="Ignored; the path names the model.")
    ] = None
    model_version: Annotated[
        ShortText | None, Field(description="Ignored; the path names the version.")
    ] = None
    parameters: InferParameters = InferParameters()
    inputs: Annotated[list[InputTensor], Field(max_length=16)] = []
    outputs: Annotated[
        list[RequestedOutput], Field(max_length=16, description="Outputs to return. Default: all.")
    ] = []


class OutputTensor(_Tensor):
    parameters: InputParameters | None = None


class InferResponse(_Strict):
    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[OutputTensor]


class IndexRequest(_Strict):
    ready: Annotated[bool, Field(description="List only models that are loaded.")] = False


class IndexEntry(BaseModel):
    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: Annotated[str, Field(description="Why the model failed to load; empty if it did not.")]


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
    shape: Annotated[list[int], Field(description="-1 stands for any size.")]


class ModelMetadata(BaseModel):
    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
