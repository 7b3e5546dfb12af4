"""What cannot be inferred is a problem in a sentence that names the tensor or the parameter."""

import json
from typing import Any

import numpy as np
import pytest

D = 8
X = {"name": "x", "shape": [1, D], "datatype": "FP32", "data": [0.5] * D}
INFER = "/v2/models/tiny/infer"


def with_x(**changed: Any) -> dict[str, Any]:
    return {"inputs": [{**X, **changed}]}


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "no input": ("tiny", {"inputs": []}, "tiny needs the input x"),
    "no inputs": ("tiny", {}, "tiny needs the input x"),
    "another input": ("tiny", {"inputs": [{**X, "name": "y"}]}, "no input 'y'; there is x"),
    "the input twice": ("tiny", {"inputs": [X, X]}, "two inputs of the name x"),
    "another output": ("tiny", {**with_x(), "outputs": [{"name": "mean"}]},
                       "no output 'mean'; there is reconstruction, error"),
    "too narrow": ("tiny", with_x(shape=[2, 4]), "x has shape [2, 4], but [batch, 8] is wanted"),
    "one axis": ("tiny", with_x(shape=[D]), "x has shape [8], but [batch, 8]"),
    "no rows": ("tiny", with_x(shape=[0, D], data=[]), "x has shape [0, 8]"),
    "too few numbers": ("tiny", with_x(data=[0.5]), "not as many numbers as its shape [1, 8]"),
    "nested otherwise": ("tiny", with_x(data=[[0.5] * 4] * 2), "nested otherwise"),
    "a word": ("tiny", with_x(data=["1"] * D), "not a number of its datatype"),
    "true": ("tiny", with_x(data=[True] * D), "not a number of its datatype"),
    "a fraction of an integer": ("tiny", with_x(datatype="INT32"), "not a number of its datatype"),
    "more than a byte": ("tiny", with_x(datatype="UINT8", data=[256] * D), "beyond UINT8"),
    "beyond float32": ("tiny", with_x(data=[1e39] * D), "x[0][0] is inf, not a finite number"),
    "too far": ("tiny", with_x(datatype="FP64", data=[1e30] * D), "x[0][0] is 1e+30, which is too"),
    "booleans": ("tiny", with_x(datatype="BOOL"), "x is of datatype 'BOOL', but numbers"),
    "bytes": ("tiny", with_x(datatype="BYTES"), "one of FP16, FP32, FP64, INT8"),
    "no numbers": ("tiny", {"inputs": [{k: X[k] for k in ("name", "shape", "datatype")}]},
                   "numbers of x as data or as bytes"),
    "both": ("tiny", with_x(parameters={"binary_data_size": 32}), "as data or as bytes"),
    "bytes that are not there": (
        "tiny", {"inputs": [{"name": "x", "shape": [1, D], "datatype": "FP32",
                             "parameters": {"binary_data_size": 32}}]},
        "x has 0 bytes, but FP32 of shape [1, 8] takes 32"),
    "shared memory": ("tiny", with_x(parameters={"shared_memory_region": "a"}),
                      "parameters.shared_memory_region: there is no such parameter"),
    "classification": ("tiny", {**with_x(), "outputs": [
        {"name": "error", "parameters": {"classification": 3}}]}, "no such parameter"),
    "a parameter of chains": ("tiny", {**with_x(), "parameters": {"walkers": 3}},
                              "tiny has no parameter walkers; tiny:chain has"),
    "a sequence": ("tiny", {**with_x(), "parameters": {"sequence_id": 4}},
                   "tiny has no parameter sequence_id; tiny:chain has"),
    "a misspelt parameter": ("tiny", {**with_x(), "parameters": {"sigmo": 1}},
                             "parameters.sigmo: there is no such parameter"),
    "sigma out of range": ("tiny", {**with_x(), "parameters": {"sigma": 7}}, "knows 0.2 to 1"),
    "a level out of range": ("tiny:encode", {"inputs": [X, {**X, "name": "sigma", "shape": [1, 1],
                                                         "data": [3]}]}, "leaves 0.2 to 1"),
    "too large for a graph": ("tiny:encode", with_x(data=[2e6] * D), "x[0][0] is 2e+06, but 1e+06"),
    "rows that differ": ("tiny:decode", {"inputs": [
        {**X, "name": "hidden", "shape": [2, 24], "data": [0] * 48},
        {**X, "name": "sigma", "shape": [1, 1], "data": [0.5]}]},
        "sigma has shape [1, 1], but [2, 1] is wanted"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_said_in_a_sentence(client: Any, problem: Any, case: str) -> None:
    name, body, words = BAD[case]
    problem(client.post(f"/v2/models/{name}/infer", json=body), 422, words)
    assert client.post(INFER, json=with_x()).status_code == 200


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("other", "There is no model 'other'; there are tiny"),
        ("tiny:other", "nothing called 'other'; it has reconstruct, encode"),
        ("tiny/versions/2", "There is no model 'tiny@2'; there are tiny@1"),
        ("tiny:", "nothing called ''"),
        ("..%2Ftiny", "nothing at"),
    ],
)
def test_unknown_names_are_404(client: Any, problem: Any, path: str, words: str) -> None:
    problem(client.post(f"/v2/models/{path}/infer", json=with_x()), 404, words)


@pytest.mark.parametrize(
    ("content", "headers", "status", "words"),
    [
        (b"{}", {"inference-header-content-length": "3"}, 422, "is '3', but the body has 2 bytes"),
        (b"{}", {"inference-header-content-length": "-1"}, 422, "is '-1'"),
        (b"{}", {"inference-header-content-length": "1" * 30}, 422, "11111'"),
        (b'{"inputs": []}more', {"inference-header-content-length": "14"}, 422, "4 bytes longer"),
        (b"[]", {}, 422, "not an object"),
        (b"", {}, 422, "not JSON"),
        (b'{"inputs": [3]}', {}, 422, "inputs.0"),
        (b'{"inputs": 3}', {}, 422, "inputs: input should be a valid list"),
        (b"a=1", {"content-type": "text/csv"}, 415, "send application/json"),
        (b" " * 2**25 + b" ", {}, 413, "larger than"),
    ],
)  # fmt: skip
def test_a_broken_body_is_refused(
    client: Any, problem: Any, content: bytes, headers: Any, status: int, words: str
) -> None:
    problem(client.post(INFER, content=content, headers=headers), status, words)


def test_nan_is_refused_with_its_place(client: Any, ask: Any, problem: Any) -> None:
    rows = np.zeros((2, D), "f4")
    rows[1, 3] = np.nan
    for name in ("tiny", "tiny:encode"):
        problem(ask.raw(client, name, {"x": rows}), 422, "x[1][3] is nan, not a finite number")


def test_a_graph_that_gives_no_numbers_is_the_callers_to_put_right(
    client: Any, ask: Any, problem: Any, tiny_served: Any
) -> None:
    """Steps of a size that nothing was made for."""
    noise = tiny_served.manifest.kernels["walkjump"].noise
    huge = {"state": np.full((1, D), 1e6, "f4"), "noise": np.full((1, noise), 1e6, "f4"),
            "scale": np.full((1, 1), -1e6, "f4")}  # fmt: skip
    problem(ask.raw(client, "tiny:walkjump", huge), 422, "gives NaN or infinity for these inputs")


def test_errors_are_read_by_both_kinds_of_client(client: Any) -> None:
    body = json.loads(client.post(INFER, content=b"[]").content)
    assert body["error"] == body["detail"] and body["status"] == 422
