"""Streams of samples: NDJSON lines, server-sent events (SSE), or a sequence of `.npy` files.

A stream consists of these parts:

    {"chain", "model", ...}              the head: everything that is needed to resume
    {"step", "x": [[...]]}               each kept step, after its commit
    {"done": true, "step"}               the end, with `acceptance` for `metropolis`; or
    {"done": false, "step", "resume": {"chain", "from_step", "steps"}}
                                         at a shutdown or time limit, with the request to continue
    {"error": {...}, "chain", "step"}    a failure, with the last committed step

An SSE stream ends with `[DONE]`. Frames of `.npy` are (walkers, d). The last frame has one axis and
two values: 1 if the call was finished or 0, and the last committed step.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from localmoments.errors import LocalMomentsError
from service.chains.call import ChainCall, Sample
from service.http import problems
from service.http.encodings import NDJSON, NPY, SSE, run_off_loop, write_json, write_npy
from service.http.timeouts import wait_for_disconnect

log = logging.getLogger(__name__)

Fields = Mapping[str, Any]


class Framing(Protocol):
    """How the parts of a stream are written."""

    def head(self, fields: Fields) -> bytes: ...
    def sample(self, sample: Sample) -> bytes: ...
    def tail(self, fields: Fields) -> bytes: ...


class NdjsonFraming:
    """One JSON object per line."""

    def head(self, fields: Fields) -> bytes:
        return write_json(fields) + b"\n"

    def sample(self, sample: Sample) -> bytes:
        return write_json({"step": sample.step, "x": sample.x}) + b"\n"

    def tail(self, fields: Fields) -> bytes:
        return write_json(fields) + b"\n"


class SseFraming:
    """Server-sent events, without ids and comments, on which some clients fail."""

    def head(self, fields: Fields) -> bytes:
        return b"data: %s\n\n" % write_json(fields)

    def sample(self, sample: Sample) -> bytes:
        return self.head({"step": sample.step, "x": sample.x})

    def tail(self, fields: Fields) -> bytes:
        return self.head(fields) + b"data: [DONE]\n\n"


class NpyFraming:
    """Complete `.npy` files, which `numpy.load` reads one by one from the stream."""

    def head(self, fields: Fields) -> bytes:
        return b""  # the response headers have the chain and the model

    def sample(self, sample: Sample) -> bytes:
        return write_npy(sample.x)

    def tail(self, fields: Fields) -> bytes:
        return write_npy(np.array([bool(fields.get("done")), fields["step"]], np.int64))


FRAMINGS: Mapping[str, Framing] = {NDJSON: NdjsonFraming(), SSE: SseFraming(), NPY: NpyFraming()}


@contextlib.asynccontextmanager
async def stop_on_disconnect(call: ChainCall, receive: Receive) -> AsyncIterator[None]:
    """Halt the call before its next step if the client disconnects within this block."""
    watcher = asyncio.create_task(_stop_after_disconnect(call, receive))
    try:
        yield
    finally:
        watcher.cancel()


async def _stop_after_disconnect(call: ChainCall, receive: Receive) -> None:
    await wait_for_disconnect(receive)
    call.stop("disconnected")


class SampleStream(Response):
    """Stream the samples of a call. Anything that a 4xx can report was checked before."""

    def __init__(
        self, call: ChainCall, kind: str, head: Fields, headers: Mapping[str, str]
    ) -> None:
        super().__init__(media_type=kind, headers=headers)
        del self.headers["content-length"]
        self._call, self._framing, self._head = call, FRAMINGS[kind], head

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._call
        async with call, stop_on_disconnect(call, receive):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _send(send, self._framing.head(self._head))
            while samples := await self._next_samples(scope):
                await _send(send, await run_off_loop(_size(samples), self._write_samples, samples))
            if call.stop_reason == "disconnected":
                raise ClientDisconnect
            await send({"type": "http.response.body", "body": self._tail})

    async def _next_samples(self, scope: Scope) -> Sequence[Sample]:
        """Return the next samples; at the end or after a failure, none, and set the tail."""
        call = self._call
        try:
            if samples := await call.fetch_next():
                return samples
        except Exception as error:
            if not isinstance(error, LocalMomentsError):
                log.exception("stream failed", extra={"fields": {"chain": call.chain}})
            problem = problems.problem_fields(error, scope)
            tail = {"error": problem, "chain": call.chain, "step": call.step}
        else:
            if call.is_finished:
                tail = {"done": True, "step": call.steps.to_step, **call.get_diagnostics()}
            else:
                tail = {"done": False, "step": call.step, "resume": call.make_resume_request()}
        self._tail = self._framing.tail(tail)
        return []

    def _write_samples(self, samples: Sequence[Sample]) -> bytes:
        return b"".join([self._framing.sample(sample) for sample in samples])


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


def _size(samples: Sequence[Sample]) -> int:
    return sum(sample.z.size for sample in samples)
