"""What each server is asked, as bytes, and how its answer is read: one row, and a block of rows.

A row is JSON for everyone. A block goes by the server's best binary route: `.npy` where a body can
be raw, base64 of an `.npy` within JSON (LitServe, MLServer), or JSON where there is no other.
"""

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from serving.wire import request

Array = NDArray[Any]
NPY = "application/x-npy"
AS_JSON = {"content_type": "application/json", "accept": "application/json"}
AS_NPY = {"content_type": NPY, "accept": NPY}


@dataclass(frozen=True)
class Call:
    """One request, and the array that is in its answer."""

    data: bytes
    read: Callable[[bytes], Array]
    route: str  # in words, for the report


def dumped(x: Array) -> bytes:
    out = io.BytesIO()
    np.save(out, x)
    return out.getvalue()


def loaded(body: bytes) -> Array:
    array: Array = np.load(io.BytesIO(body), allow_pickle=False)
    return array


def as_json(path: str, body: Any, read: Callable[[Any], Any]) -> Call:
    text = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    data = request("POST", path, text, **AS_JSON)
    return Call(data, lambda answer: np.asarray(read(json.loads(answer))), "JSON")


def rows(path: str, x: Array) -> Call:
    return as_json(path, {"x": x}, lambda answer: answer["reconstruction"])


def npy(path: str, x: Array) -> Call:
    return Call(request("POST", path, dumped(x), **AS_NPY), loaded, ".npy")


def raw(path: str, x: Array) -> Call:
    data = request("POST", path, dumped(x), content_type="application/octet-stream")
    return Call(data, loaded, ".npy as a file")


def bento_rows(path: str, x: Array) -> Call:
    return as_json(path, {"x": x}, lambda answer: answer)


def lit_block(path: str, x: Array) -> Call:
    body = orjson.dumps({"npy": base64.b64encode(dumped(x)).decode()})
    data = request("POST", path, body, **AS_JSON)
    return Call(data, loaded, "base64 .npy in JSON; raw .npy back")


def v2_rows(path: str, x: Array) -> Call:
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel()}
    return as_json(path, {"inputs": [tensor]}, lambda answer: _reshaped(answer["outputs"][0]))


def _reshaped(output: Any) -> Array:
    return np.asarray(output["data"]).reshape(output["shape"])


def v2_block(path: str, x: Array) -> Call:
    text = base64.b64encode(dumped(x)).decode()
    tensor = {"name": "npy", "shape": [1, 1], "datatype": "BYTES", "data": [text],
              "parameters": {"content_type": "base64"}}  # fmt: skip
    made = as_json(path, {"inputs": [tensor]}, lambda answer: answer["outputs"][0]["data"][0])
    return Call(made.data, lambda body: _from_base64(body), "base64 .npy in JSON, both ways")


def _from_base64(body: bytes) -> Array:
    return loaded(base64.b64decode(json.loads(body)["outputs"][0]["data"][0]))
