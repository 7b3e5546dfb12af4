"""POST /v2/models/{model}/infer: tensors in, tensors out."""

import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from localmoments.arrays import Named
from service.caller import Caller
from service.http.auth import Reader, reader, sampler
from service.http.dependencies import body_of, in_time, problem_responses, use_cases
from service.oip.paths import ModelName, Version
from service.oip.request import BINARY, Asked, asked_of
from service.oip.response import answered
from service.oip.schemas import InferAnswer, InferRequest
from service.oip.sequences import advanced
from service.oip.targets import CHAIN, Surface, find

PATH = "/v2/models/{model}/infer"
PATH_OF_VERSION = "/v2/models/{model}/versions/{version}/infer"
BYTES = {"schema": {"type": "string", "format": "binary",
                    "description": "a JSON head, and tensors' bytes behind it"}}  # fmt: skip
BODY = body_of(InferRequest, binary=False)
BODY["requestBody"]["content"][BINARY] = BYTES
DESCRIBED: dict[str, Any] = {
    "summary": "Run a model, a graph or a chain",
    "response_class": Response,
    "openapi_extra": BODY,
    "responses": {
        200: {
            "description": "As JSON, or with tensors' bytes behind the JSON and its length in "
            "Inference-Header-Content-Length",
            "model": InferAnswer,
            "content": {BINARY: BYTES},
        },
        **problem_responses(401, 403, 404, 408, 409, 410, 413, 415, 422, 429, 500, 503),
    },
}
Length = Annotated[
    int | None,
    Header(
        alias="inference-header-content-length",
        ge=0,
        description="bytes of the body's JSON head; left out: all of them",
    ),
]


async def run(request: Request) -> Response:
    name, version = request.path_params["model"], request.path_params.get("version")
    caller = await (sampler if name.endswith(f":{CHAIN}") else reader)(request)
    surface = find(request.app.state.models.catalogue, name, version)
    asked = await asked_of(request, surface)
    if surface.kind == "chain":
        named = surface.model.manifest.reference if version else surface.model_name
        chain = await advanced(request, surface, named, asked, caller)
        return await answered(name, chain.model, asked, chain.outputs, chain.facts)
    async with in_time(_milliseconds(asked.parameters.timeout)):
        outputs = await RUNS[surface.kind](request, surface, asked, caller)
    return await answered(name, surface.model.manifest.reference, asked, outputs)


def _milliseconds(microseconds: int | None) -> int | None:
    return math.ceil(microseconds / 1000) if microseconds else None


async def _reconstructed(
    request: Request, surface: Surface, asked: Asked, caller: Caller
) -> Named:  # fmt: skip
    x, reference = asked.inputs["x"], surface.model.manifest.reference
    caller.charge(len(x))
    found = await use_cases(request).reconstruct(x, reference, asked.parameters.sigma)
    return {"reconstruction": found.reconstruction, "error": found.error.astype("f8", copy=False)}


async def _ran(request: Request, surface: Surface, asked: Asked, caller: Caller) -> Named:
    outputs: Named = await request.app.state.graphs.run(
        surface.model, surface.graph, asked.inputs, caller
    )
    return outputs


RUNS: dict[str, Callable[[Request, Surface, Asked, Caller], Awaitable[Named]]] = {
    "reconstruct": _reconstructed,
    "graph": _ran,
}


class _Infer(APIRoute):
    """Described by FastAPI, and called without its help, which takes longer than a row."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        return run


router = APIRouter(tags=["inference protocol"], route_class=_Infer)


@router.post(PATH, **DESCRIBED)
async def infer(
    request: Request, model: ModelName, caller: Reader, head: Length = None
) -> Response:  # fmt: skip
    """`name` reconstructs rows in the units of the data, `name:graph` runs a graph in the model's
    units, and `name:chain` samples: a sequence is a chain, begun by `sequence_start`."""
    return await run(request)


@router.post(PATH_OF_VERSION, **DESCRIBED)
async def infer_version(
    request: Request, model: ModelName, version: Version, caller: Reader, head: Length = None
) -> Response:
    """The same of one version."""
    return await run(request)
