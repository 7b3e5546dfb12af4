"""POST /sample: create or resume a chain, and return its samples whole or as a stream."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Header, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from localmoments.arrays import Reals
from localmoments.chain_state import Clamp
from localmoments.errors import DrainingError, LateError
from service.caller import Caller
from service.chains.call import ChainCall, Sample
from service.chains.planning import Plan, digest
from service.chains.service import ChainService
from service.chains.spec import CallSpec, ChainSpec
from service.http import problems
from service.http.auth import Sampler
from service.http.bodies import read_body
from service.http.encodings import (
    JSON,
    NDJSON,
    NPY,
    SSE,
    get_raw_bytes,
    make_npy_header,
    parse_json_rows,
    parse_npy_rows,
    read_json,
    run_off_loop,
    write_json,
)
from service.http.negotiation import body_format, response_format
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
from service.http.streaming import SampleStream, stop_on_disconnect
from service.routes.chain_schemas import (
    EVENTS,
    LINES,
    FromChain,
    SampleAnswer,
    SampleQuery,
    SampleRequest,
)

router = APIRouter(tags=["chains"], route_class=HotRoute)

STREAMS = (SSE, NDJSON, NPY)
PIECE_NUMBERS = 2**16  # encoded at a time
NO_CACHE = {"cache-control": "no-store", "x-accel-buffering": "no"}
PLACEHOLDER = [[0.0]]  # stands for rows that are parsed apart: pydantic would be slow with them

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        min_length=1,
        max_length=200,
        description="A key of your choice. If you send a request for a new chain again with the "
        "same key, you get the same chain and the same samples.",
    ),
]


@router.post(
    "/sample",
    summary="Draw samples",
    response_class=Response,
    openapi_extra=describe_body(SampleRequest, required=False),
    responses={
        200: describe_response(
            "JSON, or the samples alone as `.npy`, or a stream of server-sent events, of JSON "
            "lines or of `.npy` frames.",
            SampleAnswer,
            *CHAIN_HEADERS,
            content={NPY: BINARY, NDJSON: LINES, SSE: EVENTS},
            links=CHAIN_LINKS,
        ),
        **describe_problems(401, 403, 404, 406, 408, 409, 410, 413, 415, 422, 429, 500, 503),
    },
)
async def sample(
    request: Request,
    query: Annotated[SampleQuery, Query()],
    chains: Chains,
    caller: Sampler,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Draw samples that look like the data the model was trained on.

    Walkers take steps through the data; every n-th step (`thin`) is returned. The response names
    the chain. Send its id as `chain` to get more samples from where it stopped, from any replica.
    """
    chain_spec, call_spec = await _read_request(request, query)
    kind, is_streamed = _choose_format(request, call_spec.streamed)
    call_spec = replace(call_spec, streamed=is_streamed)
    call = await _open_call(chains, chain_spec, call_spec, caller, idempotency_key)
    if is_streamed:
        return SampleStream(call, kind, _describe_call(call), _headers(call) | NO_CACHE)
    samples = await _collect_samples(call, request)
    return _make_response(call, samples, kind)


async def _read_request(request: Request, query: SampleQuery) -> tuple[ChainSpec, CallSpec]:
    """Read parameters from the query and from a JSON body, which wins; `.npy` is start points."""
    kind, body = body_format(request), await read_body(request)
    if kind == NPY:
        points = await run_off_loop(len(body), parse_npy_rows, body)
        return _make_specs(query, points, None)
    return await run_off_loop(len(body), _parse_json, body, query)


def _parse_json(body: bytes, query: SampleQuery) -> tuple[ChainSpec, CallSpec]:
    fields = read_json(body) if body else {}
    points, values = _pop_start_points(fields), _pop_clamp_rows(fields, "values")
    std = _pop_clamp_rows(fields, "std")
    given = problems.validate(SampleRequest, fields)
    both = query.model_dump(exclude_unset=True) | {name: getattr(given, name) for name in fields}
    merged = SampleRequest.model_construct(**both)
    return _make_specs(merged, points, _make_clamp(merged, values, std))


def _pop_start_points(fields: dict[str, Any]) -> Reals | None:
    start = fields.get("start")
    if not isinstance(start, dict) or "points" not in start:
        return None
    rows = parse_json_rows(start["points"], name="start.points")
    fields["start"] = {**start, "points": PLACEHOLDER}
    return rows


def _pop_clamp_rows(fields: dict[str, Any], name: str) -> Reals | None:
    """Parse one row, or one per walker; (1 or W, d)."""
    clamp = fields.get("clamp")
    if not isinstance(clamp, dict) or not isinstance(clamp.get(name), list):
        return None
    values = clamp[name]
    has_rows = bool(values) and isinstance(values[0], list)
    rows = parse_json_rows(values if has_rows else [values], name=f"clamp.{name}")
    fields["clamp"] = {**clamp, name: PLACEHOLDER}
    return rows


def _make_clamp(given: SampleRequest, values: Reals | None, std: Reals | None) -> Clamp | None:
    if given.clamp is None or values is None:
        return None
    if std is None:
        std = np.full((1, 1), given.clamp.std or 0.0)
    return Clamp(np.atleast_2d(np.array(given.clamp.mask, bool)), values, std)


def _make_specs(
    given: SampleQuery | SampleRequest, points: Reals | None, clamp: Clamp | None
) -> tuple[ChainSpec, CallSpec]:
    scale: Any = given.scale
    start: Any = given.start
    if points is not None:
        start = "points"
    elif isinstance(given.start, FromChain):
        start = "chain"
    chain_spec = ChainSpec(
        model=given.model,
        walkers=given.walkers,
        burn_in=given.burn_in,
        kernel=given.kernel,
        scale=[scale] if isinstance(scale, float | int) else scale,
        floor=given.floor,
        seed=given.seed,
        start=start,
        start_points=points,
        start_chain=given.start.chain if isinstance(given.start, FromChain) else "",
        clamp=clamp,
        metropolis=given.metropolis,
    )
    call_spec = CallSpec(
        steps=given.steps,
        thin=given.thin,
        emit=given.emit,
        chain=given.chain,
        from_step=given.from_step,
        streamed=given.stream,
        seconds=None if given.timeout_ms is None else given.timeout_ms / 1000,
    )
    return chain_spec, call_spec


def _choose_format(request: Request, stream: bool) -> tuple[str, bool]:
    """Return the format, and whether it is a stream, by `Accept` and by the body's `stream`."""
    if stream and "application/json" in request.headers.get("accept", ""):
        return SSE, True  # clients of completion APIs accept JSON and expect events
    kind = response_format(request, STREAMS if stream else (JSON, NPY, NDJSON, SSE))
    return kind, stream or kind in (NDJSON, SSE)


async def _open_call(
    chains: ChainService, spec: ChainSpec, call: CallSpec, caller: Caller, key: str | None
) -> ChainCall:
    if call.chain is not None:
        return await chains.resume(call.chain, spec, call, caller)
    key_and_digest = None if key is None else (key, _digest_request(spec, call))
    return await chains.open(spec, call, caller, key_and_digest)


def _digest_request(spec: ChainSpec, call: CallSpec) -> str:
    """Hash what makes two requests the same; the format of the response does not.

    The digest is stored with the chain, so it must not change with the names of the fields.
    """
    start = {"kind": spec.start, "points": spec.start_points, "chain": spec.start_chain}
    chain_fields = vars(spec) | {
        "start": start if spec.start else None,
        "clamp": spec.clamp and vars(spec.clamp),
    }
    del chain_fields["start_points"], chain_fields["start_chain"]
    call_fields = vars(call) | {"streamed": False, "seconds": None}
    del call_fields["chain"]
    return digest([chain_fields, call_fields])


async def _collect_samples(call: ChainCall, request: Request) -> list[Sample]:
    """Return every sample of a call that is not streamed."""
    async with call, stop_on_disconnect(call, request.receive):
        samples = await call.fetch_all()
    if call.stop_reason == "disconnected":
        raise ClientDisconnect
    if not call.is_finished:
        raise _make_cut_short_error(call)
    return samples


def _make_cut_short_error(call: ChainCall) -> LateError | DrainingError:
    facts: dict[str, Any] = {
        "chain": call.chain,
        "step": call.step,
        "resume": call.make_resume_request(),
    }
    if call.stop_reason == "timed_out":
        sentence = f"The time limit is reached. The chain is kept at step {call.step}."
        return LateError(sentence, **facts)
    sentence = f"The service is shutting down. The chain is kept at step {call.step}."
    return DrainingError(sentence, retry_after=1, **facts)


def _describe_call(call: ChainCall) -> dict[str, Any]:
    """Return the fields of the response except for the samples."""
    plan, d = call.plan, call.model.manifest.input_dims
    return {
        "chain": call.chain,
        **describe_plan(plan),
        "thin": call.steps.thin,
        "emit": call.steps.emit,
        "from_step": call.steps.from_step,
        "step": call.steps.to_step,
        "shape": [call.steps.samples, plan.walkers, d],
    }


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Return the fields of a response that come from the plan."""
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


def _headers(call: ChainCall) -> dict[str, str]:
    return {
        "vary": "accept",
        "x-model": call.plan.model,
        "x-chain-id": call.chain,
        "x-chain-step": str(call.steps.to_step),
    }


def _make_response(call: ChainCall, samples: Sequence[Sample], kind: str) -> Response:
    """Send piece by piece, so that a large response is neither encoded at once nor held twice."""
    fields = _describe_call(call) | call.get_diagnostics()
    dtype = call.model.manifest.normaliser.dtype
    if kind == NPY:
        pieces = _write_npy(samples, fields["shape"], dtype)
    else:
        pieces = _write_json(samples, fields)
    return StreamingResponse(pieces, media_type=kind, headers=_headers(call))


async def _write_npy(
    samples: Sequence[Sample], shape: Sequence[int], dtype: np.dtype[np.floating]
) -> AsyncIterator[bytes]:
    yield make_npy_header(tuple(shape), dtype)
    for group in _split(samples):
        yield await run_off_loop(_count_numbers(group), _join_bytes, group)


async def _write_json(
    samples: Sequence[Sample], fields: Mapping[str, Any]
) -> AsyncIterator[bytes]:  # fmt: skip
    yield write_json(fields)[:-1] + b',"samples":['
    for i, group in enumerate(_split(samples)):
        yield b"," * (i > 0) + await run_off_loop(_count_numbers(group), _join_json, group)
    yield b"]}"


def _split(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    size = max(1, PIECE_NUMBERS // max(1, _count_numbers(samples[:1])))
    return [samples[i : i + size] for i in range(0, len(samples), size)]


def _count_numbers(samples: Sequence[Sample]) -> int:
    return sum(sample.z.size for sample in samples)


def _join_bytes(samples: Sequence[Sample]) -> bytes:
    return b"".join([get_raw_bytes(sample.x) for sample in samples])


def _join_json(samples: Sequence[Sample]) -> bytes:
    return b",".join([write_json({"x": sample.x})[len(b'{"x":') : -1] for sample in samples])
