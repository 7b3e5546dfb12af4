"""Read inference requests and encode responses.

A message is a JSON header, optionally followed by the bytes of tensors. The HTTP header
`Inference-Header-Content-Length` gives the length of the JSON; without it, the whole body is JSON.
"""

import zlib
from functools import lru_cache
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from localmoments.arrays import Named
from localmoments.errors import InputError, MediaTypeError, TooLargeError
from service.http.bodies import read_body
from service.http.encodings import JSON, get_raw_bytes, read_json, run_off_loop
from service.http.negotiation import read_content_type
from service.http.problems import validate
from service.oip.schemas import InferRequest, InputTensor
from service.oip.targets import Target
from service.oip.tensors import (
    DATATYPE_NAMES,
    Array,
    convert,
    encode_json,
    parse_bytes,
    parse_json,
)

JSON_LENGTH = "inference-header-content-length"
BINARY = "application/octet-stream"
ZLIB_WINDOWS = {"gzip": 31, "deflate": 15}  # zlib's `wbits` of each content encoding
NO_DATA = object()
CACHEABLE_BYTES = 1024  # size up to which a JSON header is cached


async def read_request(
    request: Request, target: Target, json_length: int | None
) -> tuple[InferRequest, dict[str, Array]]:
    """Read the body of an infer request.

    Args:
        request: body as JSON, or JSON and bytes; optionally compressed with gzip or deflate.
        target: what the request is for; its inputs decide the types of the arrays.
        json_length: bytes of the JSON header. None: the whole body is JSON.

    Returns:
        The JSON header without tensor values, and the input arrays by name.

    Raises:
        MediaTypeError: the content type or encoding is not supported.
        TooLargeError: the body exceeds the body limit after decompression.
        InputError: the body is malformed or does not fit the target.
    """
    read_content_type(request, (JSON, BINARY))
    body = await read_body(request)
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        limit: int = request.app.state.max_body_bytes
        body = await run_off_loop(len(body), _decompress, body, encoding, limit)
    if json_length is None:
        json_length = len(body)
    elif json_length > len(body):
        raise InputError(
            f"Inference-Header-Content-Length is {json_length}, but the body has {len(body)} bytes."
        )
    return await run_off_loop(len(body), _parse, body, json_length, target)


def _decompress(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding not in ZLIB_WINDOWS:
        raise MediaTypeError(
            f"The content encoding {encoding[:50]!r} is not supported; use gzip or deflate."
        )
    decompressor = zlib.decompressobj(ZLIB_WINDOWS[encoding])
    try:
        content = decompressor.decompress(body, limit + 1)  # stops early: a small body can be huge
    except zlib.error as error:
        raise InputError(f"The body is not {encoding}: {error}.") from None
    if len(content) > limit:
        raise TooLargeError(f"The decompressed body exceeds the limit of {limit} bytes.")
    if not decompressor.eof or decompressor.unused_data:
        raise InputError(f"The body is not one complete {encoding} stream.")
    return content


def _parse(body: bytes, json_length: int, target: Target) -> tuple[InferRequest, dict[str, Array]]:
    # The JSON header of binary requests hardly ever changes between requests of a client.
    cacheable = json_length < min(len(body), CACHEABLE_BYTES)
    header, data = (_parse_header_cached if cacheable else _parse_header)(body[:json_length])
    arrays = _read_arrays(header.inputs, data, memoryview(body)[json_length:])
    target.check(header, arrays)
    axes: dict[str, int] = {}
    specs = {spec.name: spec for spec in target.inputs}
    return header, {name: convert(array, specs[name], axes) for name, array in arrays.items()}


def _parse_header(text: bytes) -> tuple[InferRequest, list[object]]:
    """Return the validated header and the JSON values of each input, or NO_DATA."""
    fields = read_json(text)
    inputs, data = fields.get("inputs"), []
    if isinstance(inputs, list) and all(isinstance(tensor, dict) for tensor in inputs):
        # pydantic would check each number on its own, which takes much longer than parse_json.
        data = [tensor.pop("data", NO_DATA) for tensor in inputs]
    return validate(InferRequest, fields), data


_parse_header_cached = lru_cache(maxsize=256)(_parse_header)


def _read_arrays(
    tensors: list[InputTensor], data: list[object], tail: memoryview
) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for tensor, values in zip(tensors, data, strict=True):
        size = tensor.parameters.binary_data_size
        if (size is None) == (values is NO_DATA):
            raise InputError(
                f"Give the values of {tensor.name} either as data or as bytes with "
                "binary_data_size."
            )
        if tensor.name in arrays:
            raise InputError(f"There are two inputs named {tensor.name}.")
        if size is None:
            arrays[tensor.name] = parse_json(tensor, values)
        else:
            arrays[tensor.name], tail = parse_bytes(tensor, tail[:size]), tail[size:]
    if tail:
        raise InputError(f"The body has {len(tail)} bytes after its last tensor.")
    return arrays


async def encode_response(target: Target, request: InferRequest, outputs: Named) -> Response:
    """Encode the requested outputs, or all of them, as JSON or as JSON and bytes.

    `outputs` must contain finite values only. A request chooses bytes for all outputs by
    `binary_data_output`, and for one output by `binary_data`.
    """
    size = sum(array.size for array in outputs.values())
    content, headers = await run_off_loop(size, _encode, target, request, outputs)
    headers["x-model"] = target.model.manifest.reference
    media_type = BINARY if JSON_LENGTH in headers else JSON
    return Response(content, media_type=media_type, headers=headers)


def _encode(
    target: Target, request: InferRequest, outputs: Named
) -> tuple[bytes, dict[str, str]]:  # fmt: skip
    requested = {o.name: o.parameters.binary_data for o in request.outputs}
    tensors, buffers = [], []
    for name, as_bytes in (requested or dict.fromkeys(outputs)).items():
        array = outputs[name]
        tensor: dict[str, Any] = {
            "name": name, "datatype": DATATYPE_NAMES[array.dtype], "shape": array.shape,
        }  # fmt: skip
        if request.parameters.binary_data_output if as_bytes is None else as_bytes:
            buffers.append(get_raw_bytes(array))
            tensor["parameters"] = {"binary_data_size": array.nbytes}
        else:
            tensor["data"] = encode_json(array)
        tensors.append(tensor)
    fields = {
        "model_name": target.name,
        "model_version": target.model.manifest.version,
        **({} if request.id is None else {"id": request.id}),
        "outputs": tensors,
    }
    header = orjson.dumps(fields)
    if not buffers:
        return header, {}
    return b"".join([header, *buffers]), {JSON_LENGTH: str(len(header))}
