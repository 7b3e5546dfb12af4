"""A request that cannot be run gets a problem that names the tensor or the parameter."""

import json
from typing import Any

import numpy as np
import pytest

D = 8
X = {"name": "x", "shape": [1, D], "datatype": "FP32", "data": [0.5] * D}
INFER = "/v2/models/tiny/infer"


def with_x(**changes: Any) -> dict[str, Any]:
    return {"inputs": [{**X, **changes}]}


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "empty inputs": ("tiny", {"inputs": []}, "tiny needs the input x"),
    "no inputs": ("tiny", {}, "tiny needs the input x"),
    "unknown input": ("tiny", {"inputs": [{**X, "name": "y"}]}, "no input 'y'; it has x"),
    "input given twice": ("tiny", {"inputs": [X, X]}, "two inputs named x"),
    "unknown output": ("tiny", {**with_x(), "outputs": [{"name": "mean"}]},
                       "no output 'mean'; it has reconstruction, error"),
    "too few columns": ("tiny", with_x(shape=[2, 4]), "shape [2, 4]; expected [batch, 8]"),
    "one axis": ("tiny", with_x(shape=[D]), "shape [8]; expected [batch, 8]"),
    "no rows": ("tiny", with_x(shape=[0, D], data=[]), "shape [0, 8]"),
    "too few values": ("tiny", with_x(data=[0.5]), "number of values in x does not match"),
    "wrong nesting": ("tiny", with_x(data=[[0.5] * 4] * 2), "nesting of x does not match"),
    "strings": ("tiny", with_x(data=["1"] * D), "not a number of its datatype, FP32"),
    "booleans in JSON": ("tiny", with_x(data=[True] * D), "not a number of its datatype"),
    "fractions as integers": ("tiny", with_x(datatype="INT32"), "not a number of its datatype"),
    "beyond uint8": ("tiny", with_x(datatype="UINT8", data=[256] * D), "the range of UINT8"),
    "beyond float32": ("tiny", with_x(data=[1e39] * D), "x[0][0] is inf, not a finite number"),
    "far from the data": ("tiny", with_x(datatype="FP64", data=[1e30] * D), "x[0][0] is 1e+30"),
    "BOOL": ("tiny", with_x(datatype="BOOL"), "x has datatype 'BOOL'"),
    "BYTES": ("tiny", with_x(datatype="BYTES"), "datatypes: FP16, FP32, FP64, INT8"),
    "no values": ("tiny", {"inputs": [{k: X[k] for k in ("name", "shape", "datatype")}]},
                  "values of x either as data or as bytes"),
    "data and bytes": ("tiny", with_x(parameters={"binary_data_size": 32}), "either as data or"),
    "missing bytes": (
        "tiny", {"inputs": [{"name": "x", "shape": [1, D], "datatype": "FP32",
                             "parameters": {"binary_data_size": 32}}]},
        "x has 0 bytes, but FP32 of shape [1, 8] takes 32"),
    "shared memory": ("tiny", with_x(parameters={"shared_memory_region": "a"}),
                      "parameters.shared_memory_region"),
    "classification": ("tiny", {**with_x(), "outputs": [
        {"name": "error", "parameters": {"classification": 3}}]}, "classification"),
    "a sequence": ("tiny", {**with_x(), "parameters": {"sequence_id": 4}},
                   "parameters.sequence_id"),
    "unknown parameter": ("tiny", {**with_x(), "parameters": {"sigmo": 1}}, "parameters.sigmo"),
    "sigma out of range": ("tiny", {**with_x(), "parameters": {"sigma": 7}}, "0.2 to 1"),
    "sigma as a parameter of a graph": ("tiny:encode", {**with_x(), "parameters": {"sigma": 0.5}},
                                        "Send the input sigma"),
    "input sigma out of range": ("tiny:encode", {"inputs": [
        X, {**X, "name": "sigma", "shape": [1, 1], "data": [3]}]}, "0.2 to 1"),
    "too large for a graph": ("tiny:encode", with_x(data=[2e6] * D),
                              "x[0][0] is 2e+06; the largest magnitude allowed is 1e+06"),
    "different numbers of rows": ("tiny:decode", {"inputs": [
        {**X, "name": "hidden", "shape": [2, 24], "data": [0] * 48},
        {**X, "name": "sigma", "shape": [1, 1], "data": [0.5]}]},
        "sigma has shape [1, 1]; expected [2, 1]"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_gets_422_with_a_reason(client: Any, problem: Any, case: str) -> None:
    name, body, words = BAD[case]
    problem(client.post(f"/v2/models/{name}/infer", json=body), 422, words)
    assert client.post(INFER, json=with_x()).status_code == 200


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("other", "'other'"),
        ("tiny:other", "no graph 'other'; it has reconstruct, encode"),
        ("tiny/versions/2", "'tiny@2'"),
        ("tiny:", "no graph ''"),
        ("..%2Ftiny", "/v2/models/"),
    ],
)
def test_unknown_names_get_404(client: Any, problem: Any, path: str, words: str) -> None:
    problem(client.post(f"/v2/models/{path}/infer", json=with_x()), 404, words)


@pytest.mark.parametrize(
    ("content", "headers", "status", "words"),
    [
        (b"{}", {"inference-header-content-length": "3"}, 422, "is 3, but the body has 2 bytes"),
        (b"{}", {"inference-header-content-length": "-1"}, 422, "greater than or equal to 0"),
        (b"{}", {"inference-header-content-length": "1" * 30}, 422, "has 2 bytes"),
        (b'{"inputs": []}more', {"inference-header-content-length": "14"}, 422, "4 bytes after"),
        (b"[]", {}, 422, "must be a JSON object"),
        (b"", {}, 422, "not valid JSON"),
        (b'{"inputs": [3]}', {}, 422, "inputs.0"),
        (b'{"inputs": 3}', {}, 422, "inputs: "),
        (b"a=1", {"content-type": "text/csv"}, 415, "send application/json"),
        (b" " * 2**25 + b" ", {}, 413, "33554432 bytes"),
    ],
)  # fmt: skip
def test_a_malformed_body_is_refused(
    client: Any, problem: Any, content: bytes, headers: Any, status: int, words: str
) -> None:
    problem(client.post(INFER, content=content, headers=headers), status, words)


def test_nan_is_refused_with_its_position(client: Any, infer: Any, problem: Any) -> None:
    rows = np.zeros((2, D), "f4")
    rows[1, 3] = np.nan
    for name in ("tiny", "tiny:encode"):
        problem(infer.raw(client, name, {"x": rows}), 422, "x[1][3] is nan, not a finite number")


def test_inputs_that_make_a_graph_overflow_get_422(
    client: Any, infer: Any, problem: Any, tiny_served: Any
) -> None:
    noise = tiny_served.manifest.kernels["walkjump"].noise
    huge = {"state": np.full((1, D), 1e6, "f4"), "noise": np.full((1, noise), 1e6, "f4"),
            "scale": np.full((1, 1), -1e6, "f4")}  # fmt: skip
    problem(infer.raw(client, "tiny:walkjump", huge), 422, "NaN or infinity")


def test_a_problem_has_the_field_that_protocol_clients_read(client: Any) -> None:
    body = json.loads(client.post(INFER, content=b"[]").content)
    assert body["error"] == body["detail"] and body["status"] == 422
