"""The shapes of a stream's parts; service.http.streaming says in which order they come."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from service.http.chain_schemas import SampleHead
from service.http.schemas import Problem, Rows

REF = {"$ref": "#/components/schemas/StreamPart"}


class StreamSample(BaseModel):
    """A kept step, after its commit."""

    step: int
    x: Annotated[Rows, Field(description="walkers × d")]


class StreamEnd(BaseModel):
    done: Literal[True]
    step: int
    acceptance: Annotated[
        float | None, Field(description="accepted proposals of this call; with `metropolis` only")
    ] = None


class Rest(BaseModel):
    """To be sent to `/sample` as it is."""

    chain: str
    from_step: int
    steps: int
    thin: Annotated[int | None, Field(description="where it is not the chain's own")] = None
    emit: Annotated[str | None, Field(description="where it is not the chain's own")] = None


class StreamBreak(BaseModel):
    """The service is about to end, or time is over; what is left can be had later."""

    done: Literal[False]
    step: Annotated[int, Field(description="the last that is committed")]
    resume: Annotated[Rest, Field(description="the request that goes on here")]


class StreamError(BaseModel):
    error: Problem
    chain: str
    step: Annotated[int, Field(description="the last that is committed")]


def parts() -> dict[str, Any]:
    """Schemas for OpenAPI's components."""
    kinds: Any = SampleHead | StreamSample | StreamEnd | StreamBreak | StreamError
    schema = TypeAdapter(kinds).json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), "StreamPart": schema}


LINES = {"itemSchema": REF}
EVENTS = {
    "itemSchema": {
        "type": "object",
        "required": ["data"],
        "properties": {
            "data": {
                "type": "string",
                "anyOf": [
                    {"contentMediaType": "application/json", "contentSchema": REF},
                    {"const": "[DONE]"},
                ],
            }
        },
    }
}
