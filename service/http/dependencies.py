"""What handlers are given, and the parts of parsing and encoding that they share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from localmoments.arrays import Reals
from localmoments.errors import InputError, LateError
from service.chains.service import ChainService
from service.engine.repository import Catalogue
from service.http import problems, schemas
from service.http.encodings import (
    JSON,
    NPY,
    could_hold_booleans,
    read_json,
    rows_of_json,
    rows_of_npy,
)
from service.http.negotiation import body_format
from service.inference import Inference

LARGE = 2**16  # bytes or numbers from which on the event loop should not wait

P = TypeVar("P", bound=schemas.Parameters)
T = TypeVar("T")


def use_cases(request: Request) -> Inference:
    sampling: Inference = request.app.state.sampling
    return sampling


def _catalogue(request: Request) -> Catalogue:
    """One moment's models: a handler that looks twice sees the same."""
    catalogue: Catalogue = request.app.state.models.catalogue
    return catalogue


def walkable(request: Request) -> ChainService:
    chains: ChainService = request.app.state.chains
    return chains


UseCases = Annotated[Inference, Depends(use_cases)]
Walkable = Annotated[ChainService, Depends(walkable)]
Served = Annotated[Catalogue, Depends(_catalogue)]


async def rows_and_parameters(request: Request, query: P) -> tuple[Reals, P]:
    """x from the body; parameters from the query, and from a JSON body, which wins."""
    kind, body = body_format(request), await whole_body(request)
    if kind == NPY:
        return await off_loop(len(body), rows_of_npy, body), query
    return await off_loop(len(body), of_json, body, query)


async def whole_body(request: Request) -> bytes:
    """As `request.body()`, without its generator: most bodies come in one piece."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body
    pieces = [body]
    while message.get("more_body", False):
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
    return b"".join(pieces)


def of_json(body: bytes, query: P) -> tuple[Reals, P]:
    fields = read_json(body)
    if "x" not in fields:
        raise InputError("x is missing.")
    x = rows_of_json(fields.pop("x"), numbers=not could_hold_booleans(body))
    if not fields:
        return x, query
    said = problems.validated(type(query), fields)
    return x, query.model_copy(update={name: getattr(said, name) for name in fields})


async def off_loop(size: int, function: Callable[..., T], *args: object) -> T:
    """Small work here and now, large work on a thread."""
    return await asyncio.to_thread(function, *args) if size > LARGE else function(*args)


def in_time(milliseconds: int | None) -> AbstractAsyncContextManager[None]:
    """What is not done by then is given up, and leaves the queue if it still waits."""
    return contextlib.nullcontext() if milliseconds is None else _limited(milliseconds)


@contextlib.asynccontextmanager
async def _limited(milliseconds: int) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(milliseconds / 1000):
            yield
    except TimeoutError:
        raise LateError(f"This was not done within {milliseconds} ms.") from None


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI."""
    content = {problems.PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    kinds = problems.KINDS.values()
    said = {s: dict.fromkeys(kind.title for kind in kinds if kind.status == s) for s in statuses}
    return {s: {"description": "; ".join(said[s]), "content": content} for s in statuses}


def body_of(
    model: type[BaseModel], *, required: bool = True, binary: bool = True
) -> dict[str, Any]:
    """For OpenAPI: the bodies that a route reads by hand, which FastAPI does not see."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if binary:
        rows = {"type": "string", "format": "binary", "description": "rows × columns, real numbers"}
        content[NPY] = {"schema": rows}
    return {"requestBody": {"required": required, "content": content}}


def answered(content: bytes, kind: str, headers: dict[str, str] | None = None) -> Response:
    return Response(content, media_type=kind, headers={"vary": "accept", **(headers or {})})
