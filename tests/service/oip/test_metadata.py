"""What the server says about itself and its models, in the protocol's words."""

from typing import Any

import pytest

from localmoments.model import Model

D = 8


def test_the_server_names_its_extensions(client: Any) -> None:
    body = client.get("/v2").json()
    assert body["name"] == "localmoments" and body["version"]
    extensions = {"binary_tensor_data", "sequence", "sequence(string_id)", "model_repository"}
    assert extensions <= set(body["extensions"])


def test_health_is_said_with_a_status(client: Any, make_client: Any, problem: Any) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"live": True, "ready": True}
    unwell = make_client(store_url="redis://127.0.0.1:1", store_seconds=0.2)
    assert unwell.get("/v2/health/live").status_code == 200
    problem(unwell.get("/v2/health/ready"), 503)
    assert unwell.get("/v2/models/tiny/ready").json() == {"name": "tiny", "ready": True}
    problem(unwell.get("/v2/models/tiny:chain/ready"), 503)


@pytest.mark.parametrize("part", ["", "/ready", "/config"])
def test_versions_are_told_apart(client: Any, problem: Any, part: str) -> None:
    newest = client.get(f"/v2/models/tiny{part}").json()
    assert client.get(f"/v2/models/tiny/versions/1{part}").json() == newest
    assert newest["name"] == "tiny"
    problem(client.get(f"/v2/models/tiny/versions/2{part}"), 404, "'tiny@2'; there are tiny@1")
    problem(client.get(f"/v2/models/tiny:none{part}"), 404, "nothing called 'none'")


def test_metadata_of_rows_is_that_of_the_users_units(client: Any, tiny_served: Model) -> None:
    datatype = {4: "FP32", 8: "FP64"}[tiny_served.manifest.normaliser.dtype.itemsize]
    body = client.get("/v2/models/tiny").json()
    assert body["versions"] == ["1"] and body["platform"] == "onnxruntime_onnx"
    assert body["inputs"] == [{"name": "x", "datatype": datatype, "shape": [-1, D]}]
    assert body["outputs"] == [
        {"name": "reconstruction", "datatype": datatype, "shape": [-1, D]},
        {"name": "error", "datatype": "FP64", "shape": [-1]},
    ]


def test_metadata_of_a_graph_is_that_of_the_artefact(client: Any, tiny_served: Model) -> None:
    for name, graph in tiny_served.manifest.graphs.items():
        body = client.get(f"/v2/models/tiny:{name}").json()
        for side, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
            said = {tensor["name"]: tuple(tensor["shape"]) for tensor in body[side]}
            sizes = {
                k: tuple(n if isinstance(n, int) else -1 for n in s) for k, s in tensors.items()
            }
            assert said == sizes
            assert {tensor["datatype"] for tensor in body[side]} == {"FP32"}


def test_the_configuration_leaves_the_axis_of_rows_out(client: Any, make_client: Any) -> None:
    body = client.get("/v2/models/tiny/config").json()
    [x] = body["input"]
    rows, error = body["output"]
    assert (body["max_batch_size"], x["dims"], rows["dims"]) == (4096, [D], [D])
    assert (error["dims"], error["reshape"]) == ([1], {"shape": []})
    assert body["parameters"]["units"]["string_value"] == "data" and "dynamic_batching" in body
    graph = client.get("/v2/models/tiny:moments/config").json()
    assert [(i["name"], i["dims"], i["optional"]) for i in graph["input"]] == [
        ("x", [D], False), ("v", [-1, D], False), ("sigma", [1], True),
    ]  # fmt: skip
    assert graph["parameters"]["units"]["string_value"] == "model"
    chain = client.get("/v2/models/tiny:chain/config").json()
    assert chain["max_batch_size"] == 0 and "sequence_batching" in chain
    assert "dynamic_batching" not in chain
    few = make_client(max_rows=3).get("/v2/models/tiny/config").json()
    assert few["max_batch_size"] == 3


def test_everything_in_the_index_can_be_asked(client: Any, problem: Any) -> None:
    entries = client.post("/v2/repository/index").json()
    served = [entry for entry in entries if entry["state"] == "READY"]
    assert {"tiny", "tiny:moments", "tiny:gibbs", "tiny:chain"} <= {e["name"] for e in served}
    for entry in served:
        path = f"/v2/models/{entry['name']}/versions/{entry['version']}/ready"
        assert client.get(path).json() == {"name": entry["name"], "ready": True}
    [refused] = [entry for entry in entries if entry["state"] == "UNAVAILABLE"]
    assert (refused["name"], refused["version"]) == ("tiny", "2")
    assert "gibbs.onnx was altered" in refused["reason"]
    assert client.post("/v2/repository/index", json={"ready": True}).json() == served
    problem(client.post("/v2/repository/index", json={"raedy": True}), 422, "raedy")
    problem(client.post("/v2/repository/index", content=b"x"), 422, "not JSON")


def test_routes_count_by_their_templates(client: Any) -> None:
    client.post("/v2/models/unheard-of/infer", json={})
    client.get("/v2/models/tiny/ready")
    text = client.get("/metrics").text
    assert 'route="/v2/models/{model}/infer",status="404"' in text
    assert 'route="/v2/models/{model}/ready",status="200"' in text
    assert "unheard-of" not in text
