"""A request for samples, from a query and a body, as the use cases understand it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import Request

from localmoments.arrays import Reals
from localmoments.errors import InputError
from localmoments.transition import ClampSpec
from service.chains.spec import CallSpec, ChainSpec, Start
from service.http import problems
from service.http.chain_schemas import FromChain, SampleQuery, SampleRequest
from service.http.dependencies import off_loop
from service.http.encodings import NPY, read_json, rows_of_json, rows_of_npy
from service.http.negotiation import body_format

PLACEHOLDER = [[0.0]]  # for rows that were read already and that pydantic would be slow with


@dataclass(frozen=True)
class Asked:
    making: ChainSpec
    stretch: CallSpec
    chain: str | None
    stream: bool


async def asked_of(request: Request, query: SampleQuery) -> Asked:
    """Parameters from the query, and from a JSON body, which wins; a `.npy` body is `points`."""
    kind, body = body_format(request), await request.body()
    if kind == NPY:
        points = await off_loop(len(body), rows_of_npy, body)
        return _asked(query, Start("points", points), None)
    return await off_loop(len(body), _of_json, body, query)


def _of_json(body: bytes, query: SampleQuery) -> Asked:
    fields = read_json(body) if body else {}
    points, values = _rows_of_start(fields), _rows_of_clamp(fields, "values")
    std = _rows_of_clamp(fields, "std")
    said = problems.validated(SampleRequest, fields)
    both = query.model_dump(exclude_unset=True) | {n: getattr(said, n) for n in fields}
    merged = SampleRequest.model_construct(**both)
    return _asked(merged, _start(merged, points), _known(merged, values, std))


def _rows_of_start(fields: dict[str, Any]) -> Reals | None:
    start = fields.get("start")
    if not isinstance(start, dict) or "points" not in start:
        return None
    rows = _named(start["points"], "start.points")
    fields["start"] = {**start, "points": PLACEHOLDER}
    return rows


def _rows_of_clamp(fields: dict[str, Any], name: str) -> Reals | None:
    """A row, or one for every walker; (1 or W, d)."""
    clamp = fields.get("clamp")
    if not isinstance(clamp, dict) or not isinstance(clamp.get(name), list):
        return None
    values = clamp[name]
    many = bool(values) and isinstance(values[0], list)
    rows = _named(values if many else [values], f"clamp.{name}")
    fields["clamp"] = {**clamp, name: PLACEHOLDER}
    return rows


def _named(value: object, name: str) -> Reals:
    try:
        return rows_of_json(value)
    except InputError as error:
        raise InputError(name + str(error).removeprefix("x")) from None


def _start(said: SampleRequest, points: Reals | None) -> Start | None:
    if points is not None:
        if not len(points):
            raise InputError("start.points has no rows.")
        return Start("points", points)
    if isinstance(said.start, FromChain):
        return Start("chain", chain=said.start.chain)
    return Start(said.start) if isinstance(said.start, str) else None


def _known(said: SampleRequest, values: Reals | None, std: Reals | None) -> ClampSpec | None:
    if said.clamp is None or values is None:
        return None
    if std is None:
        std = np.full((1, 1), said.clamp.std or 0.0)
    return ClampSpec(np.atleast_2d(np.array(said.clamp.mask, bool)), values, std)


def _asked(
    said: SampleQuery | SampleRequest, start: Start | None, known: ClampSpec | None
) -> Asked:
    scale: Any = said.scale
    making = ChainSpec(
        model=said.model,
        walkers=said.walkers,
        burn_in=said.burn_in,
        kernel=said.kernel,
        scale=[scale] if isinstance(scale, float | int) else scale,
        floor=said.floor,
        seed=said.seed,
        start=start,
        clamp=known,
        metropolis=said.metropolis,
    )
    seconds = None if said.timeout_ms is None else said.timeout_ms / 1000
    stretch = CallSpec(said.steps, said.thin, said.emit, said.from_step, seconds=seconds)
    return Asked(making, stretch, said.chain, said.stream)
