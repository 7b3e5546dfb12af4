"""POST /v2/models/{model}/infer: run a model, or one graph of it, on tensors."""

import math
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from localmoments.arrays import Named
from service.caller import Caller
from service.http.auth import Reader
from service.http.openapi import describe_body, describe_problems, describe_response
from service.http.route import HotRoute
from service.http.state import InferenceUse, Models
from service.http.timeouts import time_limit
from service.inference import Inference
from service.oip.messages import BINARY, JSON_LENGTH, encode_response, read_request
from service.oip.schemas import InferRequest, InferResponse
from service.oip.targets import ModelName, Target, Version, find_target

PATH = "/v2/models/{model}/infer"
PATH_OF_VERSION = "/v2/models/{model}/versions/{version}/infer"
BINARY_CONTENT = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "JSON header, then the bytes of tensors in the order of the header.",
    }
}
REQUEST_BODY = describe_body(InferRequest, binary=False)
REQUEST_BODY["requestBody"]["content"][BINARY] = BINARY_CONTENT
OPENAPI: dict[str, Any] = {
    "response_class": Response,
    "openapi_extra": REQUEST_BODY,
    "responses": {
        200: describe_response(
            "JSON, or JSON followed by the bytes of tensors. In the second case, "
            "Inference-Header-Content-Length is the length of the JSON.",
            InferResponse,
            "X-Model",
            "Inference-Header-Content-Length",
            content={BINARY: BINARY_CONTENT},
        ),
        **describe_problems(401, 403, 404, 408, 413, 415, 422, 429, 500, 503),
    },
}
JsonLength = Annotated[
    int | None,
    Header(
        alias=JSON_LENGTH,
        ge=0,
        description="Length of the JSON header in bytes. Default: the whole body is JSON.",
    ),
]


router = APIRouter(tags=["inference protocol"], route_class=HotRoute)


@router.post(PATH, summary="Run a model or one of its graphs", **OPENAPI)
async def infer(
    request: Request,
    model: ModelName,
    catalogue: Models,
    inference: InferenceUse,
    caller: Reader,
    json_length: JsonLength = None,
) -> Response:
    """Run the newest version of a model.

    `name` reconstructs rows, in the units of the data. `name:graph` runs a graph of the artefact,
    in the model's units.
    """
    return await _run(request, find_target(catalogue, model), inference, caller, json_length)


@router.post(PATH_OF_VERSION, summary="Run one version of a model", **OPENAPI)
async def infer_version(
    request: Request,
    model: ModelName,
    version: Version,
    catalogue: Models,
    inference: InferenceUse,
    caller: Reader,
    json_length: JsonLength = None,
) -> Response:
    """Run the given version of a model. See the route without a version."""
    target = find_target(catalogue, model, version)
    return await _run(request, target, inference, caller, json_length)


async def _run(
    request: Request, target: Target, inference: Inference, caller: Caller, json_length: int | None
) -> Response:
    body, inputs = await read_request(request, target, json_length)
    timeout = body.parameters.timeout  # microseconds
    async with time_limit(math.ceil(timeout / 1000) if timeout else None):
        if target.graph is None:
            outputs = await _reconstruct(target, body, inputs, inference, caller)
        else:
            outputs = await inference.run_graph(target.model, target.graph, inputs, caller)
    return await encode_response(target, body, outputs)


async def _reconstruct(
    target: Target, body: InferRequest, inputs: Named, inference: Inference, caller: Caller
) -> Named:
    x = inputs["x"]
    reference = target.model.manifest.reference
    result = await inference.reconstruct(x, reference, body.parameters.sigma, caller)
    return {"reconstruction": result.reconstruction, "error": result.error.astype("f8", copy=False)}
