"""What handlers are given, and the parts of parsing and encoding that they share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.responses import Response

from service.api import problems, schemas
from service.api.encodings import JSON, NPY, read_json, rows_of_json, rows_of_npy
from service.api.negotiation import body_format
from service.chains.use_cases import Chains
from service.core.errors import InputError, LateError
from service.core.types import Doubles
from service.engine.repository import Catalogue
from service.sampling import Sampling

LARGE = 2**16  # bytes or numbers from which on the event loop should not wait

P = TypeVar("P", bound=schemas.Parameters)
T = TypeVar("T")


def use_cases(request: Request) -> Sampling:
    sampling: Sampling = request.app.state.sampling
    return sampling


def _catalogue(request: Request) -> Catalogue:
    """One moment's models: a handler that looks twice sees the same."""
    catalogue: Catalogue = request.app.state.models.catalogue
    return catalogue


def walkable(request: Request) -> Chains:
    chains: Chains = request.app.state.chains
    return chains


UseCases = Annotated[Sampling, Depends(use_cases)]
Walkable = Annotated[Chains, Depends(walkable)]
Served = Annotated[Catalogue, Depends(_catalogue)]


async def rows_and_parameters(request: Request, query: P) -> tuple[Doubles, P]:
    """x from the body; parameters from the query, and from a JSON body, which wins."""
    kind, body = body_format(request), await request.body()
    if kind == NPY:
        return await off_loop(len(body), rows_of_npy, body), query
    return await off_loop(len(body), _of_json, body, query)


def _of_json(body: bytes, query: P) -> tuple[Doubles, P]:
    fields = read_json(body)
    if "x" not in fields:
        raise InputError("x is missing.")
    x = rows_of_json(fields.pop("x"))
    said = problems.validated(type(query), fields)
    return x, query.model_copy(update={name: getattr(said, name) for name in fields})


async def off_loop(size: int, function: Callable[..., T], *args: object) -> T:
    """Small work here and now, large work on a thread."""
    return await asyncio.to_thread(function, *args) if size > LARGE else function(*args)


@contextlib.asynccontextmanager
async def in_time(milliseconds: int | None) -> AsyncIterator[None]:
    """What is not done by then is given up, and leaves the queue if it still waits."""
    try:
        async with asyncio.timeout(None if milliseconds is None else milliseconds / 1000):
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
