"""The body of an inference request: a JSON head, and tensors' bytes behind it.

Without `Inference-Header-Content-Length` all of it is the head. A compressed body is taken apart
up to the limit of all bodies, and not beyond.
"""

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from starlette.requests import Request

from localmoments.errors import InputError, MediaTypeError, TooLargeError
from service.http.dependencies import off_loop
from service.http.encodings import JSON, read_json
from service.http.problems import validated
from service.oip.schemas import InferParameters, InferRequest, InputTensor, RequestedOutput
from service.oip.targets import Surface
from service.oip.tensors import Array, fitted, of_bytes, of_json

HEAD = "inference-header-content-length"
BINARY = "application/octet-stream"
WINDOWS = {"gzip": 31, "deflate": 15}  # zlib's words for both formats
NOTHING = object()
SHORT = 1024  # bytes of a head that is worth remembering


@dataclass(frozen=True)
class Asked:
    id: str | None
    parameters: InferParameters
    inputs: dict[str, Array]  # as the surface takes them
    outputs: list[RequestedOutput]


async def asked_of(request: Request, surface: Surface) -> Asked:
    _check_kind(request)
    body = await request.body()
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        most: int = request.app.state.max_body_bytes
        body = await off_loop(len(body), _inflated, body, encoding, most)
    length = _head_length(request.headers.get(HEAD), len(body))
    return await off_loop(len(body), _read, body, length, surface)


def _check_kind(request: Request) -> None:
    """Clients of this protocol may leave it out."""
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind not in (JSON, BINARY):
        raise MediaTypeError(f"A body of {kind[:100]!r} is not read here; send {JSON} or {BINARY}.")


def _inflated(body: bytes, encoding: str, most: int) -> bytes:
    if encoding not in WINDOWS:
        raise MediaTypeError(f"A body with content encoding {encoding[:50]!r} is not read here.")
    unpacking = zlib.decompressobj(WINDOWS[encoding])
    try:
        whole = unpacking.decompress(body, most + 1)
    except zlib.error as error:
        raise InputError(f"The body is not {encoding}: {error}.") from None
    if len(whole) > most:
        raise TooLargeError(f"The body unpacks to more than {most} bytes, the most that is read.")
    if not unpacking.eof or unpacking.unused_data:
        raise InputError(f"The body is not one whole piece of {encoding}.")
    return whole


def _head_length(said: str | None, size: int) -> int:
    if said is None:
        return size
    if not (said.isascii() and said.isdecimal()) or len(said) > 18 or int(said) > size:
        raise InputError(
            f"Inference-Header-Content-Length is {said[:20]!r}, but the body has {size} bytes."
        )
    return int(said)


def _read(body: bytes, length: int, surface: Surface) -> Asked:
    head = body if length == len(body) else body[:length]
    said, data = (_remembered if length < min(len(body), SHORT) else _understood)(head)
    arrays = _arrays(said.inputs, data, memoryview(body)[length:])
    surface.check(said.parameters, arrays, [output.name for output in said.outputs])
    axes: dict[str, int] = {}
    specs = {spec.name: spec for spec in surface.inputs}
    inputs = {name: fitted(specs[name], array, axes) for name, array in arrays.items()}
    return Asked(said.id, said.parameters, inputs, said.outputs)


def _understood(head: bytes) -> tuple[InferRequest, list[object]]:
    fields = read_json(head)
    data = _data_apart(fields)
    return validated(InferRequest, fields), data


_remembered = lru_cache(maxsize=256)(_understood)  # a caller's heads are mostly the same


def _data_apart(head: dict[str, Any]) -> list[object]:
    """The tensors' numbers, taken out of the head, so that pydantic need not look at each."""
    inputs = head.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(tensor, dict) for tensor in inputs):
        return []
    return [tensor.pop("data", NOTHING) for tensor in inputs]


def _arrays(
    tensors: list[InputTensor], data: list[object], rest: memoryview
) -> dict[str, Array]:  # fmt: skip
    arrays: dict[str, Array] = {}
    for tensor, numbers in zip(tensors, data, strict=True):
        size = tensor.parameters.binary_data_size
        if (size is None) == (numbers is NOTHING):
            raise InputError(f"Give the numbers of {tensor.name} as data or as bytes.")
        if tensor.name in arrays:
            raise InputError(f"There are two inputs of the name {tensor.name}.")
        if size is None:
            arrays[tensor.name] = of_json(tensor, numbers)
        else:
            arrays[tensor.name], rest = of_bytes(tensor, rest[:size]), rest[size:]
    if rest:
        raise InputError(f"The body is {len(rest)} bytes longer than its head and its tensors.")
    return arrays
