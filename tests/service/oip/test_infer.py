"""POST /v2/models/{model}/infer: reconstruction in the user's units, graphs in the model's."""

import gzip
import io
import json
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

from localmoments.model import Model
from service.http.encodings import NPY, write_npy

D = 8


@pytest.fixture(scope="module")
def doubles() -> Any:
    return np.random.default_rng(0).standard_normal((200, D))


@pytest.fixture(scope="module")
def x(doubles: Any) -> Any:
    return doubles[:6].astype("f4")


def reconstruct_npy(client: Any, x: Any, query: str = "") -> Any:
    headers = {"content-type": NPY, "accept": NPY}
    response = client.post(f"/reconstruct{query}", content=write_npy(x), headers=headers)
    return np.load(io.BytesIO(response.content))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1"])
@pytest.mark.parametrize("binary", [True, False])
def test_infer_returns_the_same_bits_as_reconstruct(
    client: Any, infer: Any, doubles: Any, dtype: str, binary: bool
) -> None:
    rows = (np.abs(3 * doubles) if dtype in ("i8", "u1") else doubles).astype(dtype)
    outputs = infer(client, "tiny", {"x": rows}, binary=binary).outputs
    expected, actual = reconstruct_npy(client, rows), outputs["reconstruction"]
    assert actual.dtype == expected.dtype and actual.tobytes() == expected.tobytes()
    errors = client.post("/reconstruct", json={"x": rows.tolist()}).json()["error"]
    np.testing.assert_allclose(outputs["error"], errors, rtol=1e-6)


def test_a_request_chooses_outputs_and_their_encoding(client: Any, infer: Any, x: Any) -> None:
    requested = [
        {"name": "error"},
        {"name": "reconstruction", "parameters": {"binary_data": True}},
    ]
    result = infer(client, "tiny", {"x": x}, fields={"outputs": requested, "parameters": {}})
    error, rows = result.header["outputs"]
    assert len(error["data"]) == 6 and rows["parameters"] == {"binary_data_size": 6 * D * 4}
    error_only = infer(client, "tiny", {"x": x}, fields={"outputs": [{"name": "error"}]})
    assert list(error_only.outputs) == ["error"]
    assert np.array_equal(error_only.outputs["error"], result.outputs["error"])


def test_the_response_names_model_version_and_id(client: Any, infer: Any, x: Any) -> None:
    header = infer(client, "tiny", {"x": x}, version="1", fields={"id": "seven"}).header
    assert (header["model_name"], header["model_version"], header["id"]) == ("tiny", "1", "seven")
    assert "id" not in infer(client, "tiny", {"x": x}).header
    assert infer.raw(client, "tiny", {"x": x}).headers["x-model"] == "tiny@1"


def test_nested_and_flat_values_give_the_same_response(client: Any, x: Any) -> None:
    tensor = {"name": "x", "shape": [6, D], "datatype": "FP32"}
    bodies = [{"inputs": [{**tensor, "data": d}]} for d in (x.tolist(), x.ravel().tolist())]
    nested, flat = (client.post("/v2/models/tiny/infer", json=body).json() for body in bodies)
    assert nested == flat and len(flat["outputs"][0]["data"]) == 6 * D


def test_sigma_has_the_same_effect_as_in_reconstruct(client: Any, infer: Any, x: Any) -> None:
    actual = infer(client, "tiny", {"x": x}, sigma=0.9).outputs["reconstruction"]
    assert np.array_equal(actual, reconstruct_npy(client, x, "?sigma=0.9"))
    assert not np.array_equal(actual, reconstruct_npy(client, x))


def make_inputs(model: Model, graph: str) -> dict[str, Any]:
    """Random inputs of the graph's shapes: 5 rows, 3 vectors."""
    rng, sizes = np.random.default_rng(1), {"batch": 5, "probes": 3}
    shapes = model.manifest.graphs[graph].inputs
    inputs = {
        name: rng.standard_normal([sizes.get(n, n) for n in shape]).astype("f4")
        for name, shape in shapes.items()
    }
    inputs |= {"scale": np.full((5, 1), 0.7, "f4")} if "scale" in inputs else {}
    return inputs | (
        {"sigma": np.linspace(0.2, 1, 5, dtype="f4")[:, None]} if "sigma" in inputs else {}
    )


@pytest.mark.parametrize(
    "graph",
    ["reconstruct", "encode", "decode", "moments", "jacobian", "encoder_jacobian", "hidden",
     "input", "moment", "gibbs", "walkjump"],
)  # fmt: skip
@pytest.mark.parametrize("binary", [True, False])
def test_every_graph_returns_the_same_bits_as_onnxruntime(
    client: Any, infer: Any, tiny_served: Model, graph: str, binary: bool
) -> None:
    inputs = make_inputs(tiny_served, graph)
    expected = tiny_served.run(graph, **inputs)
    outputs = infer(client, f"tiny:{graph}", inputs, binary=binary).outputs
    assert list(outputs) == list(expected)
    for name, array in expected.items():
        assert outputs[name].tobytes() == array.tobytes()


def test_the_test_above_covers_all_graphs_of_the_model(tiny_served: Model) -> None:
    [marks] = [m for m in test_every_graph_returns_the_same_bits_as_onnxruntime.pytestmark
               if m.args[0] == "graph"]  # fmt: skip
    assert set(marks.args[1]) == set(tiny_served.manifest.graphs)


def test_a_graph_uses_the_models_noise_level_by_default(
    client: Any, infer: Any, tiny_served: Model
) -> None:
    x = make_inputs(tiny_served, "encode")["x"]
    expected = tiny_served.run("encode", x=x, **tiny_served.noise_level(5))["hidden"]
    actual = infer(client, "tiny:encode", {"x": x.astype("f8")}).outputs["hidden"]
    assert np.array_equal(actual, expected)


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_compressed_body_gives_the_same_response(
    client: Any, x: Any, problem: Any, encoding: str, compress: Any
) -> None:
    tensor = {"name": "x", "shape": [6, D], "datatype": "FP32", "data": x.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    headers, path = {"content-encoding": encoding}, "/v2/models/tiny/infer"
    response = client.post(path, content=compress(body), headers=headers)
    assert response.json() == client.post(path, content=body).json()
    cut = compress(body)[:-3]
    problem(client.post(path, content=cut, headers=headers), 422, "not one complete")
    problem(client.post(path, content=body, headers=headers), 422, f"not {encoding}")
    problem(client.post(path, content=body, headers={"content-encoding": "br"}), 415, "'br'")


def test_a_compression_bomb_is_refused_without_being_expanded(client: Any, problem: Any) -> None:
    bomb = gzip.compress(b" " * 2**27)
    headers = {"content-encoding": "gzip"}
    tracemalloc.start()
    response = client.post("/v2/models/tiny/infer", content=bomb, headers=headers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    problem(response, 413, "decompressed body exceeds")
    assert peak < 2**26.5


def test_limits_of_rows_and_values_hold(make_client: Any, infer: Any, problem: Any) -> None:
    client = make_client(max_rows=3, max_answer_values=500)
    rows = np.zeros((4, D), "f4")
    problem(infer.raw(client, "tiny", {"x": rows}), 413, "4 rows")
    problem(infer.raw(client, "tiny:encode", {"x": rows}), 413, "4 rows")
    wide = {"x": rows[:1], "v": np.zeros((1, 63, D), "f4")}
    problem(infer.raw(client, "tiny:moments", wide), 413, "504")


def test_a_timeout_ends_the_request(client: Any, infer: Any, problem: Any) -> None:
    rows = np.zeros((256, D), "f4")
    slow = {"x": rows, "v": np.zeros((256, 1500, D), "f4")}
    problem(infer.raw(client, "tiny:moments", slow, timeout=1), 408, "1 ms")
    assert infer(client, "tiny", {"x": rows}, timeout=0, priority=3).outputs
