"""POST /reconstruct: rows x to r(x), and how far each was moved."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.http.auth import Reader, reader
from service.http.dependencies import (
    UseCases,
    answered,
    body_of,
    in_time,
    off_loop,
    problem_responses,
    rows_and_parameters,
    use_cases,
)
from service.http.encodings import JSON, NPY, write_json, write_npy
from service.http.negotiation import answer_format
from service.http.schemas import Parameters, ReconstructAnswer, ReconstructRequest

NOTHING = Parameters()

router = APIRouter(tags=["moments"])


@router.post(
    "/reconstruct",
    summary="Reconstruct rows",
    response_class=Response,
    openapi_extra=body_of(ReconstructRequest),
    responses={
        200: {
            "description": f"As JSON, or the rows alone as {NPY} with the model in X-Model",
            "model": ReconstructAnswer,
            "content": {NPY: {"schema": {"type": "string", "format": "binary"}}},
        },
        **problem_responses(404, 406, 408, 413, 415, 422, 429, 500, 503),
    },
)
async def reconstruct(
    request: Request, query: Annotated[Parameters, Query()], sampling: UseCases, caller: Reader
) -> Response:
    """Return r(x) of every row; for a denoising auto-encoder, this is the denoised row."""
    kind = answer_format(request, (JSON, NPY))
    x, asked = await rows_and_parameters(request, query)
    caller.charge(len(x))
    async with in_time(asked.timeout_ms):
        answer = await sampling.reconstruct(x, asked.model, asked.sigma)
    if kind == NPY:
        content = await off_loop(x.size, write_npy, answer.reconstruction)
    else:
        content = await off_loop(x.size, write_json, vars(answer))
    return answered(content, kind, {"x-model": answer.model})


async def at_once(request: Request) -> Response:
    """The same for a request without a query, which needs nothing found out by FastAPI."""
    return await reconstruct(request, NOTHING, use_cases(request), await reader(request))
