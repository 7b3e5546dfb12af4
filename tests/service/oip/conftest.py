"""Send inference requests with values as JSON or as bytes after the JSON header."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

JSON_LENGTH = "inference-header-content-length"
DTYPES = {"FP16": "f2", "FP32": "f4", "FP64": "f8", "INT64": "i8", "UINT8": "u1"}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


@dataclass(frozen=True)
class Result:
    header: dict[str, Any]
    outputs: dict[str, Any]


def encode(inputs: dict[str, Any], binary: bool, **fields: Any) -> tuple[bytes, dict[str, str]]:
    """Return a body and its HTTP headers."""
    tensors, tail = [], b""
    for name, array in inputs.items():
        tensor = {"name": name, "shape": array.shape, "datatype": NAMES[array.dtype]}
        if binary:
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            tail += array.tobytes()
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    header = json.dumps({"inputs": tensors, **fields}).encode()
    return header + tail, {JSON_LENGTH: str(len(header))} if tail else {}


def decode(response: httpx.Response) -> Result:
    assert response.status_code == 200, response.text
    length, content = response.headers.get(JSON_LENGTH), response.content
    header = json.loads(content[: int(length)] if length else content)
    tail, outputs = content[int(length) :] if length else b"", {}
    for tensor in header["outputs"]:
        dtype = np.dtype(DTYPES[tensor["datatype"]])
        if "data" in tensor:
            array = np.array(tensor["data"], dtype)
        else:
            size = tensor["parameters"]["binary_data_size"]
            array, tail = np.frombuffer(tail[:size], dtype), tail[size:]
        outputs[tensor["name"]] = array.reshape(tensor["shape"])
    assert not tail
    return Result(header, outputs)


class Infer:
    """Call infer: `infer(client, "name", {"x": rows}, parameter=...)`."""

    def raw(
        self, client: Any, name: str, inputs: dict[str, Any], *, binary: bool = True,
        version: str = "", fields: dict[str, Any] | None = None, headers: Any = None,
        **parameters: Any,
    ) -> httpx.Response:  # fmt: skip
        """Return the undecoded response; `fields` are added to the JSON header."""
        defaults = {"parameters": {"binary_data_output": binary, **parameters}}
        body, length = encode(inputs, binary, **{**defaults, **(fields or {})})
        path = f"/v2/models/{name}{version and '/versions/'}{version}/infer"
        response: httpx.Response = client.post(
            path, content=body, headers={**length, **(headers or {})}
        )
        return response

    def __call__(self, client: Any, name: str, inputs: dict[str, Any], **options: Any) -> Result:
        return decode(self.raw(client, name, inputs, **options))


@pytest.fixture(scope="session")
def infer() -> Infer:
    return Infer()
