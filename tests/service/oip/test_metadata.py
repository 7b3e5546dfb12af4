"""Health, metadata and the repository index of the Open Inference Protocol."""

from typing import Any

import pytest

from localmoments.model import Model

D = 8


def test_the_server_lists_its_extensions(client: Any) -> None:
    body = client.get("/v2").json()
    assert body["name"] == "localmoments" and body["version"]
    assert body["extensions"] == ["binary_tensor_data", "model_repository"]


def test_health_follows_the_chain_store(client: Any, make_client: Any, problem: Any) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"live": True, "ready": True}
    without_store = make_client(store_url="redis://127.0.0.1:1", store_seconds=0.2)
    assert without_store.get("/v2/health/live").status_code == 200
    problem(without_store.get("/v2/health/ready"), 503)
    assert without_store.get("/v2/models/tiny/ready").json() == {"name": "tiny", "ready": True}


@pytest.mark.parametrize("part", ["", "/ready"])
def test_a_path_without_a_version_refers_to_the_newest(
    client: Any, problem: Any, part: str
) -> None:
    newest = client.get(f"/v2/models/tiny{part}").json()
    assert client.get(f"/v2/models/tiny/versions/1{part}").json() == newest
    assert newest["name"] == "tiny"
    problem(client.get(f"/v2/models/tiny/versions/2{part}"), 404, "'tiny@2'")
    problem(client.get(f"/v2/models/tiny:none{part}"), 404, "no graph 'none'")


def test_metadata_of_reconstruction_is_in_the_users_units(client: Any, tiny_served: Model) -> None:
    datatype = {4: "FP32", 8: "FP64"}[tiny_served.manifest.normaliser.dtype.itemsize]
    body = client.get("/v2/models/tiny").json()
    assert body["versions"] == ["1"] and body["platform"] == "onnxruntime_onnx"
    assert body["inputs"] == [{"name": "x", "datatype": datatype, "shape": [-1, D]}]
    assert body["outputs"] == [
        {"name": "reconstruction", "datatype": datatype, "shape": [-1, D]},
        {"name": "error", "datatype": "FP64", "shape": [-1]},
    ]


def test_metadata_of_a_graph_equals_the_manifest(client: Any, tiny_served: Model) -> None:
    for name, graph in tiny_served.manifest.graphs.items():
        body = client.get(f"/v2/models/tiny:{name}").json()
        for side, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
            shapes = {tensor["name"]: tuple(tensor["shape"]) for tensor in body[side]}
            expected = {
                k: tuple(n if isinstance(n, int) else -1 for n in s) for k, s in tensors.items()
            }
            assert shapes == expected
            assert {tensor["datatype"] for tensor in body[side]} == {"FP32"}


def test_everything_in_the_index_is_ready(client: Any, problem: Any) -> None:
    entries = client.post("/v2/repository/index").json()
    ready = [entry for entry in entries if entry["state"] == "READY"]
    assert {"tiny", "tiny:moments", "tiny:gibbs"} <= {entry["name"] for entry in ready}
    for entry in ready:
        path = f"/v2/models/{entry['name']}/versions/{entry['version']}/ready"
        assert client.get(path).json() == {"name": entry["name"], "ready": True}
    [refused] = [entry for entry in entries if entry["state"] == "UNAVAILABLE"]
    assert (refused["name"], refused["version"]) == ("tiny", "2")
    assert "gibbs.onnx" in refused["reason"]
    assert client.post("/v2/repository/index", json={"ready": True}).json() == ready
    problem(client.post("/v2/repository/index", json={"raedy": True}), 422, "raedy")
    problem(client.post("/v2/repository/index", content=b"x"), 422, "not valid JSON")


def test_metrics_count_requests_by_route_template(client: Any) -> None:
    client.post("/v2/models/unheard-of/infer", json={})
    client.get("/v2/models/tiny/ready")
    text = client.get("/metrics").text
    assert 'route="/v2/models/{model}/infer",status="404"' in text
    assert 'route="/v2/models/{model}/ready",status="200"' in text
    assert "unheard-of" not in text


@pytest.mark.parametrize(
    "path", ["/v2/models/tiny/config", "/v2/models/tiny/versions/1/config", "/v2/models/tiny:chain"]
)
def test_configuration_and_sequences_are_not_offered(
    client: Any, problem: Any, path: str
) -> None:  # fmt: skip
    problem(client.get(path), 404)
