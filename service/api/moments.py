"""GET and POST /moments: where the data goes from a point, and in which directions it spreads."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.api.dependencies import (
    UseCases,
    answered,
    body_of,
    off_loop,
    problem_responses,
    rows_and_parameters,
)
from service.api.encodings import JSON, NPZ, row_of_base64, row_of_text, write_json, write_npz
from service.api.negotiation import answer_format
from service.api.schemas import (
    MomentsAnswer,
    MomentsAnswers,
    MomentsParameters,
    MomentsQuery,
    MomentsRequest,
)
from service.core.errors import InputError
from service.core.types import Doubles
from service.sampling import LocalMoments, Question

router = APIRouter(tags=["moments"])

WRITERS = {JSON: write_json, NPZ: write_npz}
ARRAYS = ("x", "mean", "eigenvalues", "tangents", "score", "covariance")


def _responses(model: type[MomentsAnswer | MomentsAnswers], *statuses: int) -> dict[Any, Any]:
    return {
        200: {
            "description": f"As JSON, or as {NPZ} with arrays of the same names",
            "model": model,
            "content": {NPZ: {"schema": {"type": "string", "format": "binary"}}},
        },
        **problem_responses(404, 406, 413, 422, 500, 503, *statuses),
    }


@router.get(
    "/moments",
    summary="Local moments at one point",
    response_class=Response,
    responses=_responses(MomentsAnswer),
)
async def moments_at_one(
    request: Request, query: Annotated[MomentsQuery, Query()], sampling: UseCases
) -> Response:
    """Local mean, covariance (as eigenvalues and tangents) and score, in the units of the data."""
    kind = answer_format(request, (JSON, NPZ))
    answer = await sampling.moments(_point(query)[None], _question(query), query.model)
    fields = _fields(answer, query)
    one = {name: value[0] if name in ARRAYS else value for name, value in fields.items()}
    return await _encoded(one, kind)


@router.post(
    "/moments",
    summary="Local moments at many points",
    response_class=Response,
    openapi_extra=body_of(MomentsRequest),
    responses=_responses(MomentsAnswers, 415),
)
async def moments_at_many(
    request: Request, query: Annotated[MomentsParameters, Query()], sampling: UseCases
) -> Response:
    """The same for every row of x, computed together."""
    kind = answer_format(request, (JSON, NPZ))
    x, asked = await rows_and_parameters(request, query)
    answer = await sampling.moments(x, _question(asked), asked.model)
    return await _encoded(_fields(answer, asked), kind)


def _point(query: MomentsQuery) -> Doubles:
    if (query.x is None) == (query.x_b64 is None):
        raise InputError("Give the point as x or as x_b64, one of the two.")
    return row_of_text(query.x) if query.x is not None else row_of_base64(query.x_b64 or "")


def _question(asked: MomentsParameters) -> Question:
    return Question(asked.rank, asked.estimator, "covariance" in asked.include, asked.sigma)


def _fields(answer: LocalMoments, asked: MomentsParameters) -> dict[str, Any]:
    """The answer's fields that were asked for."""
    parts = {*asked.include, *(["eigenvalues"] if "tangents" in asked.include else [])}
    left_out = {*ARRAYS} - parts - {"x"}
    return {name: value for name, value in vars(answer).items() if name not in left_out}


async def _encoded(fields: dict[str, Any], kind: str) -> Response:
    size = sum(value.size for name, value in fields.items() if name in ARRAYS)
    content = await off_loop(size, WRITERS[kind], fields)
    return answered(content, kind, {"x-model": fields["model"]})
