"""POST /reconstruct: return r(x) of rows x, and how far each row moved."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.http.auth import Reader
from service.http.bodies import read_rows
from service.http.encodings import JSON, NPY, run_off_loop, write_json, write_npy
from service.http.fields import MODEL, SIGMA, Points, Row, Rows, Timeout
from service.http.negotiation import make_response, response_format
from service.http.openapi import BINARY, describe_body, describe_problems, describe_response
from service.http.route import HotRoute
from service.http.state import InferenceUse
from service.http.timeouts import time_limit

router = APIRouter(tags=["moments"], route_class=HotRoute)


class Parameters(BaseModel):
    """Parameters of /reconstruct and /moments; an unknown name is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str | None, Field(description=MODEL)] = None
    sigma: Annotated[float | None, Field(gt=0, allow_inf_nan=False, description=SIGMA)] = None
    timeout_ms: Timeout = None


class ReconstructRequest(Parameters):
    x: Annotated[Points, Field(description="Rows in the units of the data.")]


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


@router.post(
    "/reconstruct",
    summary="Reconstruct rows",
    response_class=Response,
    openapi_extra=describe_body(ReconstructRequest),
    responses={
        200: describe_response(
            f"JSON, or the reconstructed rows alone as {NPY}.",
            ReconstructAnswer,
            "X-Model",
            content={NPY: BINARY},
        ),
        **describe_problems(404, 406, 408, 413, 415, 422, 429, 500, 503),
    },
)
async def reconstruct(
    request: Request,
    query: Annotated[Parameters, Query()],
    inference: InferenceUse,
    caller: Reader,
) -> Response:
    """Return r(x) of every row; for a denoising auto-encoder, this is the denoised row."""
    kind = response_format(request, (JSON, NPY))
    x, parameters = await read_rows(request, query)
    async with time_limit(parameters.timeout_ms):
        result = await inference.reconstruct(x, parameters.model, parameters.sigma, caller)
    if kind == NPY:
        content = await run_off_loop(x.size, write_npy, result.reconstruction)
    else:
        content = await run_off_loop(x.size, write_json, vars(result))
    return make_response(content, kind, {"x-model": result.model})
