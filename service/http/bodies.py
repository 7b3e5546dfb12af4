"""Read request bodies: bytes, JSON objects, and rows with their parameters."""

from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request

from localmoments.arrays import Reals
from localmoments.errors import InputError
from service.http import problems
from service.http.encodings import (
    JSON,
    NPY,
    may_hold_booleans,
    parse_json_rows,
    parse_npy_rows,
    read_json,
    run_off_loop,
)
from service.http.negotiation import body_format

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request) -> bytes:
    """Return the whole body. Unlike `request.body()`, this needs no generator for one part."""
    message = await request.receive()
    parts: list[bytes] = []
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return b"".join([*parts, body]) if parts else body
        parts.append(body)
        message = await request.receive()


async def read_model(request: Request, model: type[M]) -> M:
    """Parse a JSON body; an empty body is an empty object."""
    body = await read_body(request)
    if body:
        body_format(request, (JSON,))
    return problems.validate(model, read_json(body) if body else {})


async def read_rows(request: Request, query: M) -> tuple[Reals, M]:
    """Return the rows `x` of a body, and its parameters.

    Parameters are those of the query and those of a JSON body, which wins. A `.npy` body holds
    rows only.
    """
    kind, body = body_format(request), await read_body(request)
    if kind == NPY:
        return await run_off_loop(len(body), parse_npy_rows, body), query
    return await run_off_loop(len(body), _parse_rows, body, query)


def _parse_rows(body: bytes, query: M) -> tuple[Reals, M]:
    fields = read_json(body)
    if "x" not in fields:
        raise InputError("x is missing.")
    # pydantic would be slow with rows, so they are parsed apart.
    x = parse_json_rows(fields.pop("x"), numbers=not may_hold_booleans(body))
    if not fields:
        return x, query
    parameters = problems.validate(type(query), fields)
    return x, query.model_copy(update={name: getattr(parameters, name) for name in fields})
