"""An answer: a JSON head with numbers in it, or bytes behind it, as was asked.

Its numbers are finite: whoever made them has seen to that.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response, StreamingResponse

from localmoments.arrays import Named
from service.http.dependencies import off_loop
from service.http.encodings import JSON, raw
from service.oip.request import BINARY, HEAD, Asked
from service.oip.tensors import DATATYPES, json_of

AT_ONCE = 2**20  # bytes that are handed on at a time

Facts = Mapping[str, str | int | float]


async def answered(
    name: str, reference: str, asked: Asked, outputs: Named, facts: Facts | None = None
) -> Response:
    """Outputs in the order that they were asked for, or all."""
    size = sum(array.size for array in outputs.values())
    head, pieces = await off_loop(
        size, _encoded, asked, outputs, _described(name, reference, asked, facts)
    )
    said = {"x-model": reference}
    if not pieces:
        return Response(head, media_type=JSON, headers=said)
    said[HEAD] = str(len(head))
    whole = len(head) + sum(map(len, pieces))
    if whole <= AT_ONCE:
        return Response(b"".join([head, *pieces]), media_type=BINARY, headers=said)
    said["content-length"] = str(whole)
    return StreamingResponse(_by_and_by(head, pieces), media_type=BINARY, headers=said)


def _encoded(
    asked: Asked, outputs: Named, described: Mapping[str, Any]
) -> tuple[bytes, list[memoryview]]:
    wishes = {o.name: o.parameters.binary_data for o in asked.outputs} or dict.fromkeys(outputs)
    tensors, pieces = [], []
    for name, wish in wishes.items():
        array = outputs[name]
        tensor: dict[str, Any] = {
            "name": name, "datatype": DATATYPES[array.dtype], "shape": array.shape,
        }  # fmt: skip
        if asked.parameters.binary_data_output if wish is None else wish:
            pieces.append(raw(array) if array.size else memoryview(b""))
            tensor["parameters"] = {"binary_data_size": len(pieces[-1])}
        else:
            tensor["data"] = json_of(array)
        tensors.append(tensor)
    return orjson.dumps({**described, "outputs": tensors}), pieces


def _described(
    name: str, reference: str, asked: Asked, facts: Facts | None
) -> dict[str, Any]:  # fmt: skip
    return {
        "model_name": name,
        "model_version": reference.partition("@")[2],
        **({} if asked.id is None else {"id": asked.id}),
        **({} if facts is None else {"parameters": facts}),
    }


async def _by_and_by(head: bytes, pieces: Sequence[memoryview]) -> AsyncIterator[bytes]:
    yield head
    for piece in pieces:
        for start in range(0, len(piece), AT_ONCE):
            yield bytes(piece[start : start + AT_ONCE])
