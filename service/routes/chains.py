"""GET and DELETE /chains/{id}, POST /chains/{id}/fork: where a chain stands, its end, a branch."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from localmoments.errors import MediaTypeError
from service.chains.planning import Change
from service.chains.service import ChainStatus
from service.http import problems
from service.http.auth import Reader, Sampler
from service.http.chain_schemas import ChainAnswer, ForkRequest
from service.http.dependencies import Walkable, answered, body_of, off_loop, problem_responses
from service.http.encodings import JSON, NPY, read_json, write_json, write_npy
from service.http.negotiation import answer_format, body_format
from service.http.schemas import CHAIN
from service.routes.sample import described_plan

router = APIRouter(tags=["chains"])

Id = Annotated[
    str,
    Path(alias="id", description="the chain's id", json_schema_extra={"pattern": CHAIN}),
]
STANDING: dict[str, Any] = {
    "description": "As JSON, or the walkers' points alone as .npy",
    "model": ChainAnswer,
    "content": {NPY: {"schema": {"type": "string", "format": "binary"}}},
}
PROBLEMS = problem_responses(401, 403, 404, 406, 409, 410, 422, 429, 500, 503)


@router.get(
    "/chains/{id}",
    summary="Where a chain stands",
    response_class=Response,
    responses={200: STANDING, **PROBLEMS},
)
async def look(request: Request, chain: Id, chains: Walkable, caller: Reader) -> Response:
    """Its step, its parameters, its walkers' points, and from which steps it can go on."""
    kind = answer_format(request, (JSON, NPY))
    return await _encoded(await chains.get(chain, caller), kind)


@router.delete(
    "/chains/{id}",
    summary="End a chain",
    status_code=204,
    response_class=Response,
    responses=problem_responses(401, 403, 404, 410, 422, 429, 500, 503),
)
async def end(chain: Id, chains: Walkable, caller: Sampler) -> Response:
    """A call that walks it at this moment fails at its next commit."""
    await chains.delete(chain, caller)
    return Response(status_code=204)


@router.post(
    "/chains/{id}/fork",
    summary="Branch a chain",
    status_code=201,
    response_class=Response,
    openapi_extra=body_of(ForkRequest, required=False, binary=False),
    responses={201: STANDING, **PROBLEMS, **problem_responses(408, 413, 415)},
)
async def fork(request: Request, chain: Id, chains: Walkable, caller: Sampler) -> Response:
    """A new chain that stands where this one does and goes its own way from there."""
    kind = answer_format(request, (JSON, NPY))
    change = _change(await _fork_body(request))
    standing = await chains.fork(chain, change, caller)
    answer = await _encoded(standing, kind)
    answer.status_code = 201
    answer.headers["location"] = f"/chains/{standing.record.id}"
    return answer


async def _fork_body(request: Request) -> ForkRequest:
    body = await request.body()
    if body and body_format(request) != JSON:
        raise MediaTypeError(f"This body is read as {JSON} only.")
    return problems.validated(ForkRequest, read_json(body) if body else {})


def _change(asked: ForkRequest) -> Change:
    scale = [asked.scale] if isinstance(asked.scale, float) else asked.scale
    return Change(asked.seed, scale, asked.floor, asked.kernel, asked.from_step)


async def _encoded(standing: ChainStatus, kind: str) -> Response:
    record = standing.record
    headers = {"x-model": standing.plan.model, "x-chain-id": record.id,
               "x-chain-step": str(record.head.step)}  # fmt: skip
    if kind == NPY:
        content = await off_loop(standing.x.size, write_npy, standing.x)
    else:
        content = await off_loop(standing.x.size, write_json, _fields(standing))
    return answered(content, kind, headers)


def _fields(standing: ChainStatus) -> dict[str, Any]:
    record = standing.record
    return {
        "chain": record.id,
        **described_plan(standing.plan),
        "step": record.head.step,
        "possible": {"first": record.base.step, "last": record.head.step},
        "busy": record.busy_seconds > 0,
        "created": _iso(record.created),
        "expires": _iso(record.expires),
        "x": standing.x,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
