"""GET and POST /moments: the local mean, covariance and score of the data at points."""

import json
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from localmoments.arrays import Reals
from localmoments.errors import InputError
from localmoments.moments import Moments, MomentsSpec
from service.caller import Caller
from service.chains.service import ChainService
from service.http.auth import Reader
from service.http.bodies import read_rows
from service.http.encodings import (
    JSON,
    NPZ,
    parse_base64_row,
    parse_row,
    run_off_loop,
    write_json,
    write_npz,
)
from service.http.negotiation import make_response, response_format
from service.http.openapi import (
    BINARY,
    Responses,
    describe_body,
    describe_problems,
    describe_response,
)
from service.http.route import HotRoute
from service.http.state import Chains, InferenceUse
from service.http.timeouts import cancel_on_disconnect, time_limit
from service.routes.moments_schemas import (
    MomentsAnswer,
    MomentsAnswers,
    MomentsParameters,
    MomentsQuery,
    MomentsRequest,
)

router = APIRouter(tags=["moments"], route_class=HotRoute)

WRITERS = {JSON: write_json, NPZ: write_npz}


def _describe_responses(
    model: type[MomentsAnswer | MomentsAnswers], *statuses: int
) -> Responses:  # fmt: skip
    """Describe the responses of one route; `statuses` are problems that the other has not."""
    text = (
        f"JSON, or {NPZ} with arrays of the same names. There `trust` is JSON text and "
        "`dimension_curve` is two arrays."
    )
    problems = describe_problems(404, 406, 408, 413, 422, 429, 500, 503, *statuses)
    return {200: describe_response(text, model, "X-Model", content={NPZ: BINARY}), **problems}


@router.get(
    "/moments",
    summary="Local moments at one point",
    response_class=Response,
    responses=_describe_responses(MomentsAnswer, 409, 410),
)
async def moments_at_one(
    request: Request,
    query: Annotated[MomentsQuery, Query()],
    inference: InferenceUse,
    chains: Chains,
    caller: Reader,
) -> Response:
    """Return the local mean, the covariance (as eigenvalues and tangents) and the score at a point.

    `trust` is part of the answer if you ask for it, and whenever a value that
    needs no further computation is out of range; `asymmetry` is computed only on request.
    """
    kind = response_format(request, (JSON, NPZ))
    point, model = await _find_point(query, chains, caller)
    spec = _make_spec(query)
    async with cancel_on_disconnect(request.receive), time_limit(query.timeout_ms):
        answer = await inference.moments(point[None], spec, model, caller)
    return await _encode(_to_fields(answer.take_row(0)), kind)


@router.post(
    "/moments",
    summary="Local moments at many points",
    response_class=Response,
    openapi_extra=describe_body(MomentsRequest),
    responses=_describe_responses(MomentsAnswers, 415),
)
async def moments_at_many(
    request: Request,
    query: Annotated[MomentsParameters, Query()],
    inference: InferenceUse,
    caller: Reader,
) -> Response:
    """Return the same for every row of `x`, computed together.

    `trust` has one entry per row, null where you did not ask and every value is in range.
    """
    kind = response_format(request, (JSON, NPZ))
    x, parameters = await read_rows(request, query)
    spec = _make_spec(parameters)
    async with cancel_on_disconnect(request.receive), time_limit(parameters.timeout_ms):
        answer = await inference.moments(x, spec, parameters.model, caller)
    return await _encode(_to_fields(answer), kind)


async def _find_point(
    query: MomentsQuery, chains: ChainService, caller: Caller
) -> tuple[Reals, str | None]:  # fmt: skip
    """Return the point and the model; with `chain`, the default model is the chain's own."""
    if (query.x, query.x_b64, query.chain).count(None) != 2:
        raise InputError("Give exactly one of x, x_b64 and chain.")
    if query.chain is not None:
        return await _find_walker(query.chain, query, chains, caller)
    text = query.x
    return parse_row(text) if text is not None else parse_base64_row(query.x_b64 or ""), query.model


async def _find_walker(
    chain: str, query: MomentsQuery, chains: ChainService, caller: Caller
) -> tuple[Reals, str]:
    status = await chains.get(chain, caller)
    if query.walker >= len(status.x):
        raise InputError(
            f"walker must be less than {len(status.x)}, the number of walkers of chain {chain}; "
            f"got {query.walker}."
        )
    return status.x[query.walker], query.model or status.plan.model


def _make_spec(given: MomentsParameters) -> MomentsSpec:
    parts = None if given.include is None else frozenset(given.include)
    return MomentsSpec(given.rank, given.estimator, given.units, parts, given.sigma)


def _to_fields(answer: Moments) -> dict[str, Any]:
    """Return the fields that were computed, as plain values and arrays."""
    fields: dict[str, Any] = {k: v for k, v in vars(answer).items() if v is not None}
    trust = fields.get("trust")
    if trust is not None:  # a list, or one for a single point
        fields["trust"] = (
            [each and each.as_dict() for each in trust]
            if isinstance(trust, list)
            else trust.as_dict()
        )
    if answer.dimension_curve is not None:
        sigma, dimension = answer.dimension_curve
        fields["dimension_curve"] = {"sigma": sigma, "dimension": dimension}
    return fields


async def _encode(fields: dict[str, Any], kind: str) -> Response:
    size = sum(value.size for value in fields.values() if isinstance(value, np.ndarray))
    content = await run_off_loop(size, WRITERS[kind], fields if kind == JSON else _flatten(fields))
    return make_response(content, kind, {"x-model": fields["model"]})


def _flatten(fields: dict[str, Any]) -> dict[str, Any]:
    """Make fields for `.npz`, which holds only arrays: two for a curve, JSON text for `trust`."""
    flat = dict(fields)
    for name, array in flat.pop("dimension_curve", {}).items():
        flat[f"dimension_curve.{name}"] = array
    if "trust" in flat:
        trust = flat["trust"]
        flat["trust"] = (
            list(map(json.dumps, trust)) if isinstance(trust, list) else json.dumps(trust)
        )
    return flat
