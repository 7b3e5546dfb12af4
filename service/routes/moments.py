"""GET and POST /moments: where the data goes from a point, and in which directions it spreads."""

import json
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from localmoments.arrays import Reals
from localmoments.errors import InputError
from localmoments.moments import LEVELS, Moments, MomentsField, MomentsSpec
from localmoments.trust import PROBES
from service.caller import Caller
from service.chains.service import ChainService
from service.http.auth import Reader
from service.http.dependencies import (
    UseCases,
    Walkable,
    answered,
    body_of,
    in_time,
    off_loop,
    problem_responses,
    rows_and_parameters,
)
from service.http.encodings import JSON, NPZ, row_of_base64, row_of_text, write_json, write_npz
from service.http.negotiation import answer_format
from service.http.schemas import (
    MomentsAnswer,
    MomentsAnswers,
    MomentsParameters,
    MomentsQuery,
    MomentsRequest,
)

router = APIRouter(tags=["moments"])

WRITERS = {JSON: write_json, NPZ: write_npz}
ROWS = ("x", "mean", "eigenvalues", "tangents", "score", "covariance", "dimension", "trust")


def _responses(model: type[MomentsAnswer | MomentsAnswers], *statuses: int) -> dict[Any, Any]:
    return {
        200: {
            "description": f"JSON, or {NPZ} with arrays of the same names; in it `trust` is JSON "
            "text, and `dimension_curve` is two arrays",
            "model": model,
            "content": {NPZ: {"schema": {"type": "string", "format": "binary"}}},
        },
        **problem_responses(404, 406, 408, 413, 422, 429, 500, 503, *statuses),
    }


@router.get(
    "/moments",
    summary="Local moments at one point",
    response_class=Response,
    responses=_responses(MomentsAnswer, 409, 410),
)
async def moments_at_one(
    request: Request,
    query: Annotated[MomentsQuery, Query()],
    sampling: UseCases,
    chains: Walkable,
    caller: Reader,
) -> Response:
    """Return the local mean, the covariance (as eigenvalues and tangents) and the score at a point.

    `trust` is part of the answer if you ask for it, and whenever a value that
    needs no further computation is out of range; `asymmetry` is computed only on request.
    """
    kind = answer_format(request, (JSON, NPZ))
    point, model = await _point(query, chains, caller)
    spec = _spec(query)
    caller.charge(_cost(point[None], spec))
    async with in_time(query.timeout_ms):
        answer = await sampling.moments(point[None], spec, model)
    fields = _fields(answer)
    one = {name: value[0] if name in ROWS else value for name, value in fields.items()}
    if "dimension_curve" in one:
        one["dimension_curve"] = _first(one["dimension_curve"])
    return await _encoded(one, kind)


@router.post(
    "/moments",
    summary="Local moments at many points",
    response_class=Response,
    openapi_extra=body_of(MomentsRequest),
    responses=_responses(MomentsAnswers, 415),
)
async def moments_at_many(
    request: Request,
    query: Annotated[MomentsParameters, Query()],
    sampling: UseCases,
    caller: Reader,
) -> Response:
    """Return the same for every row of `x`, computed together.

    `trust` has one entry per row, null where you did not ask and every value is in range.
    """
    kind = answer_format(request, (JSON, NPZ))
    x, asked = await rows_and_parameters(request, query)
    spec = _spec(asked)
    caller.charge(_cost(x, spec))
    async with in_time(asked.timeout_ms):
        answer = await sampling.moments(x, spec, asked.model)
    return await _encoded(_fields(answer), kind)


async def _point(
    query: MomentsQuery, chains: ChainService, caller: Caller
) -> tuple[Reals, str | None]:  # fmt: skip
    """The point, and the model to ask; a chain brings its own, unless another is named."""
    if (query.x, query.x_b64, query.chain).count(None) != 2:
        raise InputError("Give the point as x, as x_b64 or as chain, one of the three.")
    if query.chain is not None:
        return await _walker(query.chain, query, chains, caller)
    text = query.x
    return row_of_text(text) if text is not None else row_of_base64(query.x_b64 or ""), query.model


async def _walker(
    chain: str, query: MomentsQuery, chains: ChainService, caller: Caller
) -> tuple[Reals, str]:
    standing = await chains.get(chain, caller)
    if query.walker >= len(standing.x):
        raise InputError(f"walker is {query.walker}, but chain {chain} has {len(standing.x)}.")
    return standing.x[query.walker], query.model or standing.plan.model


def _spec(asked: MomentsParameters) -> MomentsSpec:
    parts = None if asked.include is None else frozenset(asked.include)
    return MomentsSpec(asked.rank, asked.estimator, asked.units, parts, asked.sigma)


def _cost(x: Reals, spec: MomentsSpec) -> int:
    """In row-steps: an eigenpair of a row is much like a step of a walker."""
    rows, d = len(x), int(x.shape[1])
    each = d if spec.includes("covariance") else min(spec.rank, d)
    probed: dict[MomentsField, int] = {"trust": 1, "dimension": 1, "dimension_curve": LEVELS}
    each += sum(times * min(PROBES, d) for part, times in probed.items() if spec.includes(part))
    return rows * each


def _fields(answer: Moments) -> dict[str, Any]:
    """The answer's fields that were asked for, as plain values and arrays."""
    fields = {name: value for name, value in vars(answer).items() if value is not None}
    if answer.trust is not None:
        fields["trust"] = [each and each.as_dict() for each in answer.trust]
    if answer.dimension_curve is not None:
        sigma, dimension = answer.dimension_curve
        fields["dimension_curve"] = {"sigma": sigma, "dimension": dimension}
    return fields


def _first(curve: dict[str, Any]) -> dict[str, Any]:
    return {"sigma": curve["sigma"], "dimension": curve["dimension"][0]}


async def _encoded(fields: dict[str, Any], kind: str) -> Response:
    size = sum(value.size for value in fields.values() if isinstance(value, np.ndarray))
    content = await off_loop(size, WRITERS[kind], fields if kind == JSON else _flat(fields))
    return answered(content, kind, {"x-model": fields["model"]})


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """For .npz, which holds arrays only: a curve as two of them, `trust` as JSON texts."""
    flat = dict(fields)
    for name, array in flat.pop("dimension_curve", {}).items():
        flat[f"dimension_curve.{name}"] = array
    if "trust" in flat:
        trust = flat["trust"]
        flat["trust"] = (
            list(map(json.dumps, trust)) if isinstance(trust, list) else json.dumps(trust)
        )
    return flat
