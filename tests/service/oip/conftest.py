"""Asks as the protocol's clients do: a JSON head, and bytes behind it or numbers in it."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

HEAD = "inference-header-content-length"
DTYPES = {"FP16": "f2", "FP32": "f4", "FP64": "f8", "INT64": "i8", "UINT8": "u1"}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}


@dataclass(frozen=True)
class Answer:
    head: dict[str, Any]
    outputs: dict[str, Any]


def message(inputs: dict[str, Any], binary: bool, **more: Any) -> tuple[bytes, dict[str, str]]:
    """A body and its headers."""
    tensors, rest = [], b""
    for name, array in inputs.items():
        tensor = {"name": name, "shape": array.shape, "datatype": NAMES[array.dtype]}
        if binary:
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            rest += array.tobytes()
        else:
            tensor["data"] = array.ravel().tolist()
        tensors.append(tensor)
    head = json.dumps({"inputs": tensors, **more}).encode()
    return head + rest, {HEAD: str(len(head))} if rest else {}


def read(answer: httpx.Response) -> Answer:
    assert answer.status_code == 200, answer.text
    length = answer.headers.get(HEAD)
    head = json.loads(answer.content[: int(length)] if length else answer.content)
    rest, outputs = answer.content[int(length) :] if length else b"", {}
    for tensor in head["outputs"]:
        dtype = np.dtype(DTYPES[tensor["datatype"]])
        if "data" in tensor:
            array = np.array(tensor["data"], dtype)
        else:
            size = tensor["parameters"]["binary_data_size"]
            array, rest = np.frombuffer(rest[:size], dtype), rest[size:]
        outputs[tensor["name"]] = array.reshape(tensor["shape"])
    assert not rest
    return Answer(head, outputs)


class Asking:
    """`ask(client, "name", {"x": rows}, parameter=...)`."""

    def raw(
        self, client: Any, name: str, inputs: dict[str, Any], *, binary: bool = True,
        version: str = "", head: dict[str, Any] | None = None, headers: Any = None, **said: Any,
    ) -> httpx.Response:  # fmt: skip
        parameters = {"parameters": {"binary_data_output": binary, **said}}
        body, own = message(inputs, binary, **{**parameters, **(head or {})})
        path = f"/v2/models/{name}{version and '/versions/'}{version}/infer"
        sent: httpx.Response = client.post(path, content=body, headers={**own, **(headers or {})})
        return sent

    def __call__(self, client: Any, name: str, inputs: dict[str, Any], **how: Any) -> Answer:
        return read(self.raw(client, name, inputs, **how))


@pytest.fixture(scope="session")
def ask() -> Asking:
    return Asking()
