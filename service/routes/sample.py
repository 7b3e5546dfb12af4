"""POST /sample: a new chain or one to go on with, whole or as a stream."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Header, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from localmoments.errors import DrainingError, LateError
from service.caller import Caller
from service.chains.call import ChainCall, Sample
from service.chains.planning import Plan, digest
from service.chains.service import ChainService
from service.http.auth import Sampler, sampler
from service.http.chain_schemas import SampleAnswer, SampleQuery, SampleRequest
from service.http.dependencies import Walkable, body_of, off_loop, problem_responses, walkable
from service.http.encodings import JSON, NDJSON, NPY, SSE, npy_header, raw, write_json
from service.http.negotiation import answer_format
from service.http.stream_schemas import EVENTS, LINES
from service.http.streaming import StreamedRun, watched
from service.routes.sample_body import Asked, asked_of

router = APIRouter(tags=["chains"])

NOTHING = SampleQuery()
WHOLE, STREAMS = (JSON, NPY), (SSE, NDJSON, NPY)
AT_ONCE = 2**16  # numbers that are encoded at a time
NOT_KEPT = {"cache-control": "no-store", "x-accel-buffering": "no"}

Key = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        min_length=1,
        max_length=200,
        description="a request for a new chain that is sent again with the same key gives the "
        "same chain and the same samples",
    ),
]


@router.post(
    "/sample",
    summary="Walk a chain and sample",
    response_class=Response,
    openapi_extra=body_of(SampleRequest, required=False),
    responses={
        200: {
            "description": "As JSON, or the samples alone as .npy with the chain in X-Chain-Id and "
            "X-Chain-Step; or as a stream of events, of lines, or of .npy frames",
            "model": SampleAnswer,
            "content": {
                NPY: {"schema": {"type": "string", "format": "binary"}},
                NDJSON: LINES,
                SSE: EVENTS,
            },
        },
        **problem_responses(401, 403, 404, 406, 408, 409, 410, 413, 415, 422, 429, 500, 503),
    },
)
async def sample(
    request: Request,
    query: Annotated[SampleQuery, Query()],
    chains: Walkable,
    caller: Sampler,
    idempotency_key: Key = None,
) -> Response:
    """Samples near the data, from walkers that step by step draw from local moments.

    The answer names the chain; send its id as `chain` to go on where it stands, at any replica.
    """
    asked = await asked_of(request, query)
    kind, streamed = _format(request, asked.stream)
    asked = replace(asked, stretch=replace(asked.stretch, streamed=streamed))
    run = await _begun(chains, asked, caller, idempotency_key)
    if streamed:
        return StreamedRun(run, kind, described(run), _headers(run) | NOT_KEPT)
    samples = await walked(run, request)
    return _whole(run, samples, kind)


async def at_once(request: Request) -> Response:
    """The same for a request with neither a query nor a key."""
    return await sample(request, NOTHING, walkable(request), await sampler(request))


def _format(request: Request, stream: bool) -> tuple[str, bool]:
    """A format, and whether it is a stream: by `Accept`, or because the body says so."""
    if stream and "application/json" in request.headers.get("accept", ""):
        return SSE, True  # as clients of completion APIs ask for it
    kind = answer_format(request, STREAMS if stream else (*WHOLE, NDJSON, SSE))
    return kind, stream or kind in (NDJSON, SSE)


async def _begun(chains: ChainService, asked: Asked, caller: Caller, key: str | None) -> ChainCall:
    if asked.chain is not None:
        return await chains.resume(asked.chain, asked.making, asked.stretch, caller)
    named = None if key is None else (key, digest(_plain(asked)))
    return await chains.open(asked.making, asked.stretch, caller, named)


def _plain(asked: Asked) -> Any:
    """All that makes a request the same; how it is sent back does not."""
    start, clamp = asked.making.start, asked.making.clamp
    making = vars(asked.making) | {"start": start and vars(start), "clamp": clamp and vars(clamp)}
    return [making, vars(asked.stretch) | {"streamed": False, "seconds": None}]


async def walked(run: ChainCall, request: Request) -> list[Sample]:
    """Every sample of a call that is not streamed."""
    async with run, watched(run, request.receive):
        samples = await run.fetch_all()
    if run.stop_reason == "disconnected":
        raise ClientDisconnect
    if not run.is_finished:
        raise _cut_short(run)
    return samples


def _cut_short(run: ChainCall) -> LateError | DrainingError:
    facts: dict[str, Any] = {
        "chain": run.chain,
        "step": run.step,
        "resume": run.make_resume_request(),
    }
    if run.stop_reason == "timed_out":
        return LateError(f"Time is over; the chain is kept at step {run.step}.", **facts)
    sentence = f"The service is about to end; the chain is kept at step {run.step}."
    return DrainingError(sentence, retry_after=1, **facts)


def described(run: ChainCall) -> dict[str, Any]:
    """The answer's fields but for the samples."""
    plan, d = run.plan, run.model.manifest.input_dims
    return {
        "chain": run.chain,
        **described_plan(plan),
        "thin": run.steps.thin,
        "emit": run.steps.emit,
        "from_step": run.steps.from_step,
        "step": run.steps.to_step,
        "shape": [run.steps.samples, plan.walkers, d],
    }


def described_plan(plan: Plan) -> dict[str, Any]:
    transition = plan.transition
    scale = list(transition.scale)
    fields = {
        "model": plan.model,
        "kernel": transition.kernel,
        "floor": transition.floor,
        "seed": transition.seed,
        "walkers": plan.walkers,
        "burn_in": plan.burn_in,
        "thin": plan.thin,
        "emit": plan.emit,
        "scale": scale[0] if len(scale) == 1 else scale,
    }
    return fields | ({"metropolis": True} if transition.metropolis else {})


def _headers(run: ChainCall) -> dict[str, str]:
    return {
        "vary": "accept",
        "x-model": run.plan.model,
        "x-chain-id": run.chain,
        "x-chain-step": str(run.steps.to_step),
    }


def _whole(run: ChainCall, samples: Sequence[Sample], kind: str) -> Response:
    """Piece by piece, so that a large answer neither stops the loop nor stands in memory twice."""
    fields = described(run) | run.get_diagnostics()
    dtype = run.model.manifest.normaliser.dtype
    pieces = _npy(samples, fields["shape"], dtype) if kind == NPY else _json(samples, fields)
    return StreamingResponse(pieces, media_type=kind, headers=_headers(run))


async def _npy(
    samples: Sequence[Sample], shape: Sequence[int], dtype: np.dtype[np.floating]
) -> AsyncIterator[bytes]:
    yield npy_header(tuple(shape), dtype)
    for group in _groups(samples):
        yield await off_loop(_numbers(group), _bytes_of, group)


async def _json(samples: Sequence[Sample], fields: Mapping[str, Any]) -> AsyncIterator[bytes]:
    yield write_json(fields)[:-1] + b',"samples":['
    for i, group in enumerate(_groups(samples)):
        yield b"," * (i > 0) + await off_loop(_numbers(group), _json_of, group)
    yield b"]}"


def _groups(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    each = max(1, AT_ONCE // max(1, _numbers(samples[:1])))
    return [samples[i : i + each] for i in range(0, len(samples), each)]


def _numbers(samples: Sequence[Sample]) -> int:
    return sum(sample.z.size for sample in samples)


def _bytes_of(samples: Sequence[Sample]) -> bytes:
    return b"".join([raw(sample.x) for sample in samples])


def _json_of(samples: Sequence[Sample]) -> bytes:
    return b",".join([write_json({"x": sample.x})[len(b'{"x":') : -1] for sample in samples])
