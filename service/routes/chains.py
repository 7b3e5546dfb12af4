"""GET and DELETE /chains/{id}, POST /chains/{id}/fork: look at, delete and fork a chain."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from service.chains.planning import Change
from service.chains.service import ChainStatus
from service.chains.spec import CHAIN_ID
from service.http.auth import Reader, Sampler
from service.http.bodies import read_model
from service.http.encodings import JSON, NPY, run_off_loop, write_json, write_npy
from service.http.negotiation import make_response, response_format
from service.http.openapi import (
    BINARY,
    CHAIN_HEADERS,
    CHAIN_LINKS,
    describe_body,
    describe_problems,
    describe_response,
)
from service.http.route import HotRoute
from service.http.state import Chains
from service.routes.chain_schemas import ChainAnswer, ForkRequest
from service.routes.sample import describe_plan

router = APIRouter(tags=["chains"], route_class=HotRoute)

Id = Annotated[
    str,
    Path(alias="id", description="Id of the chain.", json_schema_extra={"pattern": CHAIN_ID}),
]
STATUS = "JSON, or the walkers' points alone as `.npy`."
PROBLEMS = describe_problems(401, 403, 404, 406, 409, 410, 422, 429, 500, 503)


@router.get(
    "/chains/{id}",
    summary="Get a chain",
    response_class=Response,
    responses={
        200: describe_response(STATUS, ChainAnswer, *CHAIN_HEADERS, content={NPY: BINARY}),
        **PROBLEMS,
    },
)
async def get_chain(request: Request, chain: Id, chains: Chains, caller: Reader) -> Response:
    """Return the chain's step, parameters, points, and the steps it can be resumed from."""
    kind = response_format(request, (JSON, NPY))
    return await _encode(await chains.get(chain, caller), kind)


@router.delete(
    "/chains/{id}",
    summary="Delete a chain",
    status_code=204,
    response_class=Response,
    responses={
        204: describe_response("Deleted."),
        **describe_problems(401, 403, 404, 410, 422, 429, 500, 503),
    },
)
async def delete_chain(chain: Id, chains: Chains, caller: Sampler) -> Response:
    """Delete the chain. A call that is using it fails at its next commit."""
    await chains.delete(chain, caller)
    return Response(status_code=204)


@router.post(
    "/chains/{id}/fork",
    summary="Fork a chain",
    status_code=201,
    response_class=Response,
    openapi_extra=describe_body(ForkRequest, required=False, binary=False),
    responses={
        201: describe_response(
            STATUS,
            ChainAnswer,
            *CHAIN_HEADERS,
            "Location",
            content={NPY: BINARY},
            links=CHAIN_LINKS,
        ),
        **PROBLEMS,
        **describe_problems(408, 413, 415),
    },
)
async def fork_chain(request: Request, chain: Id, chains: Chains, caller: Sampler) -> Response:
    """Create a chain that starts where this one is and continues on its own."""
    kind = response_format(request, (JSON, NPY))
    change = _make_change(await read_model(request, ForkRequest))
    status = await chains.fork(chain, change, caller)
    response = await _encode(status, kind)
    response.status_code = 201
    response.headers["location"] = f"/chains/{status.record.id}"
    return response


def _make_change(given: ForkRequest) -> Change:
    scale = [given.scale] if isinstance(given.scale, float) else given.scale
    return Change(given.seed, scale, given.floor, given.kernel, given.from_step)


async def _encode(status: ChainStatus, kind: str) -> Response:
    record = status.record
    headers = {"x-model": status.plan.model, "x-chain-id": record.id,
               "x-chain-step": str(record.head.step)}  # fmt: skip
    if kind == NPY:
        content = await run_off_loop(status.x.size, write_npy, status.x)
    else:
        content = await run_off_loop(status.x.size, write_json, _to_fields(status))
    return make_response(content, kind, headers)


def _to_fields(status: ChainStatus) -> dict[str, Any]:
    record = status.record
    return {
        "chain": record.id,
        **describe_plan(status.plan),
        "step": record.head.step,
        "possible": {"first": record.base.step, "last": record.head.step},
        "busy": record.busy_seconds > 0,
        "created": _format_time(record.created),
        "expires": _format_time(record.expires),
        "x": status.x,
    }


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
