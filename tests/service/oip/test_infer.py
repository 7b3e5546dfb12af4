"""POST /v2/.../infer on rows: reconstruction in the user's units, graphs in the model's."""

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

D, H = 8, 24


@pytest.fixture(scope="module")
def doubles() -> Any:
    return np.random.default_rng(0).standard_normal((200, D))


@pytest.fixture(scope="module")
def x(doubles: Any) -> Any:
    return doubles[:6].astype("f4")


def by_npy(client: Any, x: Any, query: str = "") -> Any:
    headers = {"content-type": NPY, "accept": NPY}
    answer = client.post(f"/reconstruct{query}", content=write_npy(x), headers=headers)
    return np.load(io.BytesIO(answer.content))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "u1"])
@pytest.mark.parametrize("binary", [True, False])
def test_infer_gives_the_bits_of_the_npy_route(
    client: Any, ask: Any, doubles: Any, dtype: str, binary: bool
) -> None:
    rows = (np.abs(3 * doubles) if dtype in ("i8", "u1") else doubles).astype(dtype)
    answer, expected = ask(client, "tiny", {"x": rows}, binary=binary), by_npy(client, rows)
    found = answer.outputs["reconstruction"]
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()
    errors = client.post("/reconstruct", json={"x": rows.tolist()}).json()["error"]
    np.testing.assert_allclose(answer.outputs["error"], errors, rtol=1e-6)


def test_outputs_are_those_asked_for_in_the_form_asked_for(client: Any, ask: Any, x: Any) -> None:
    wishes = [
        {"name": "error"},
        {"name": "reconstruction", "parameters": {"binary_data": True}},
    ]
    answer = ask(client, "tiny", {"x": x}, head={"outputs": wishes, "parameters": {}})
    error, rows = answer.head["outputs"]
    assert len(error["data"]) == 6 and rows["parameters"] == {"binary_data_size": 6 * D * 4}
    alone = ask(client, "tiny", {"x": x}, head={"outputs": [{"name": "error"}]})
    assert list(alone.outputs) == ["error"]
    assert np.array_equal(alone.outputs["error"], answer.outputs["error"])


def test_the_answer_names_what_was_asked(client: Any, ask: Any, x: Any) -> None:
    head = ask(client, "tiny", {"x": x}, version="1", head={"id": "seven"}).head
    assert (head["model_name"], head["model_version"], head["id"]) == ("tiny", "1", "seven")
    assert "id" not in ask(client, "tiny", {"x": x}).head
    assert ask.raw(client, "tiny", {"x": x}).headers["x-model"] == "tiny@1"


def test_nested_numbers_are_as_good_as_flat_ones(client: Any, ask: Any, x: Any) -> None:
    tensor = {"name": "x", "shape": [6, D], "datatype": "FP32"}
    bodies = [{"inputs": [{**tensor, "data": d}]} for d in (x.tolist(), x.ravel().tolist())]
    nested, flat = (client.post("/v2/models/tiny/infer", json=body).json() for body in bodies)
    assert nested == flat and len(flat["outputs"][0]["data"]) == 6 * D


def test_sigma_is_that_of_the_other_route(client: Any, ask: Any, x: Any) -> None:
    found = ask(client, "tiny", {"x": x}, sigma=0.9).outputs["reconstruction"]
    assert np.array_equal(found, by_npy(client, x, "?sigma=0.9"))
    assert not np.array_equal(found, by_npy(client, x))


def inputs_of(model: Model, graph: str) -> dict[str, Any]:
    """Random numbers of the graph's shapes, 5 rows and 3 vectors."""
    rng, sizes = np.random.default_rng(1), {"batch": 5, "probes": 3}
    shapes = model.manifest.graphs[graph].inputs
    made = {
        name: rng.standard_normal([sizes.get(n, n) for n in shape]).astype("f4")
        for name, shape in shapes.items()
    }
    made |= {"scale": np.full((5, 1), 0.7, "f4")} if "scale" in made else {}
    return made | (
        {"sigma": np.linspace(0.2, 1, 5, dtype="f4")[:, None]} if "sigma" in made else {}
    )


@pytest.mark.parametrize(
    "graph",
    ["reconstruct", "encode", "decode", "moments", "jacobian", "encoder_jacobian", "hidden",
     "input", "moment", "gibbs", "walkjump"],
)  # fmt: skip
@pytest.mark.parametrize("binary", [True, False])
def test_every_graph_runs_as_it_stands_in_the_artefact(
    client: Any, ask: Any, tiny_served: Model, graph: str, binary: bool
) -> None:
    inputs = inputs_of(tiny_served, graph)
    expected = tiny_served.run(graph, **inputs)
    found = ask(client, f"tiny:{graph}", inputs, binary=binary).outputs
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes()


def test_all_graphs_of_the_model_are_tried_here(tiny_served: Model) -> None:
    [marks] = [m for m in test_every_graph_runs_as_it_stands_in_the_artefact.pytestmark
               if m.args[0] == "graph"]  # fmt: skip
    assert set(marks.args[1]) == set(tiny_served.manifest.graphs)


def test_a_graph_without_its_noise_level_has_the_models_own(
    client: Any, ask: Any, tiny_served: Model
) -> None:
    inputs = inputs_of(tiny_served, "encode")
    own = {"x": inputs["x"], **tiny_served.noise_level(5)}
    found = ask(client, "tiny:encode", {"x": inputs["x"].astype("f8")}).outputs["hidden"]
    assert np.array_equal(found, tiny_served.run("encode", **own)["hidden"])


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_compressed_body_is_the_same_request(
    client: Any, x: Any, problem: Any, encoding: str, pack: Any
) -> None:
    tensor = {"name": "x", "shape": [6, D], "datatype": "FP32", "data": x.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    headers = {"content-encoding": encoding}
    path = "/v2/models/tiny/infer"
    packed = client.post(path, content=pack(body), headers=headers)
    assert packed.json() == client.post(path, content=body).json()
    bomb = pack(b" " * 2**27)
    tracemalloc.start()
    problem(client.post(path, content=bomb, headers=headers), 413, "unpacks to more than")
    assert tracemalloc.get_traced_memory()[1] < 2**26.5
    tracemalloc.stop()
    problem(client.post(path, content=pack(body)[:-3], headers=headers), 422, "one whole piece")
    problem(client.post(path, content=body, headers=headers), 422, f"not {encoding}")
    problem(client.post(path, content=body, headers={"content-encoding": "br"}), 415, "'br'")


def test_limits_are_said_with_both_numbers(make_client: Any, ask: Any, problem: Any) -> None:
    client = make_client(max_rows=3, max_answer_values=500)
    rows = np.zeros((4, D), "f4")
    problem(ask.raw(client, "tiny", {"x": rows}), 413, "4 rows, but 3")
    problem(ask.raw(client, "tiny:encode", {"x": rows}), 413, "4 rows, but 3")
    wide = {"x": rows[:1], "v": np.zeros((1, 63, D), "f4")}
    problem(ask.raw(client, "tiny:moments", wide), 413, "504 numbers, but 500")


def test_time_is_kept(client: Any, ask: Any, problem: Any) -> None:
    rows = np.zeros((256, D), "f4")
    slow = {"x": rows, "v": np.zeros((256, 1500, D), "f4")}
    problem(ask.raw(client, "tiny:moments", slow, timeout=1), 408, "within 1 ms")
    assert ask(client, "tiny", {"x": rows}, timeout=0, priority=3).outputs
