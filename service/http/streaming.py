"""Samples as they are made: NDJSON lines, server-sent events, or `.npy` files one after another.

    {"chain", "model", ...}      what was asked, so that a caller can go on after a break
    {"step", "x": [[...]]}       every kept step, after its commit
    {"done": true, "step"}       the end, with `acceptance` where steps are corrected; or, where
                                 the service is about to end,
    {"done": false, "step", "resume": {"chain", "from_step", "steps"}}
    {"error": {...}, "chain", "step"}    a failure, with the last committed step

SSE ends with `[DONE]` after either. Frames of `.npy` are (walkers, d); the last one has one axis:
whether all was done (1 or 0), and the last committed step.
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
from service.http.dependencies import off_loop
from service.http.encodings import NDJSON, NPY, SSE, write_json, write_npy

log = logging.getLogger(__name__)

Fields = Mapping[str, Any]


class Framing(Protocol):
    """How a stream's parts are written."""

    def head(self, fields: Fields) -> bytes: ...
    def sample(self, sample: Sample) -> bytes: ...
    def tail(self, fields: Fields) -> bytes: ...


class Lines:
    """A JSON object a line."""

    def head(self, fields: Fields) -> bytes:
        return write_json(fields) + b"\n"

    def sample(self, sample: Sample) -> bytes:
        return write_json({"step": sample.step, "x": sample.x}) + b"\n"

    def tail(self, fields: Fields) -> bytes:
        return write_json(fields) + b"\n"


class Events:
    """Server-sent events; neither ids nor comments, which some clients trip over."""

    def head(self, fields: Fields) -> bytes:
        return b"data: %s\n\n" % write_json(fields)

    def sample(self, sample: Sample) -> bytes:
        return self.head({"step": sample.step, "x": sample.x})

    def tail(self, fields: Fields) -> bytes:
        return self.head(fields) + b"data: [DONE]\n\n"


class Arrays:
    """Whole `.npy` files, which `numpy.load` reads one by one from the stream."""

    def head(self, fields: Fields) -> bytes:
        return b""  # it stands in the headers

    def sample(self, sample: Sample) -> bytes:
        return write_npy(sample.x)

    def tail(self, fields: Fields) -> bytes:
        return write_npy(np.array([bool(fields.get("done")), fields["step"]], np.int64))


FRAMINGS: Mapping[str, Framing] = {NDJSON: Lines(), SSE: Events(), NPY: Arrays()}


@contextlib.asynccontextmanager
async def watched(run: ChainCall, receive: Receive) -> AsyncIterator[None]:
    """While it lasts, a caller that leaves stops the run before its next step."""
    watching = asyncio.create_task(_stop_when_gone(run, receive))
    try:
        yield
    finally:
        watching.cancel()


async def _stop_when_gone(run: ChainCall, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    run.stop("disconnected")


class StreamedRun(Response):
    """A run as an answer; everything that a 4xx can say was said before."""

    def __init__(self, run: ChainCall, kind: str, head: Fields, headers: Mapping[str, str]) -> None:
        super().__init__(media_type=kind, headers=headers)
        del self.headers["content-length"]
        self._run, self._framing, self._head = run, FRAMINGS[kind], head

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        run = self._run
        async with run, watched(run, receive):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _send(send, self._framing.head(self._head))
            while samples := await self._next(scope, send):
                await _send(send, await off_loop(_size(samples), self._framed, samples))
            if run.stop_reason == "disconnected":
                raise ClientDisconnect
            await send({"type": "http.response.body", "body": self._tail})

    async def _next(self, scope: Scope, send: Send) -> Sequence[Sample]:
        """What comes next; at the end, however it came about, nothing and a tail."""
        run = self._run
        try:
            if samples := await run.fetch_next():
                return samples
        except Exception as error:
            if not isinstance(error, LocalMomentsError):
                log.exception("a stream failed", extra={"fields": {"chain": run.chain}})
            fields = problems.told(error, scope)
            self._tail = self._framing.tail({"error": fields, "chain": run.chain, "step": run.step})
            return []
        done = {"done": True, "step": run.steps.to_step, **run.get_diagnostics()}
        resumable = {"done": False, "step": run.step, "resume": run.make_resume_request()}
        self._tail = self._framing.tail(done if run.is_finished else resumable)
        return []

    def _framed(self, samples: Sequence[Sample]) -> bytes:
        return b"".join([self._framing.sample(sample) for sample in samples])


async def _send(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


def _size(samples: Sequence[Sample]) -> int:
    return sum(sample.z.size for sample in samples)
