"""Health, readiness, metrics, the format of the log, /models and /openapi.json."""

import json
import logging
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.http.logging import JsonFormatter


def test_a_service_with_a_model_is_alive_and_ready(client: Any) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"ready": True, "models": ["tiny@1"]}


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_a_service_without_models_is_alive_but_not_ready(
    make_client: Any, problem: Any, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "empty").mkdir()
    client = make_client(models=tmp_path / folder)
    assert client.get("/healthz").status_code == 200
    problem(client.get("/readyz"), 503, "empty or does not exist")
    problem(client.post("/reconstruct", json={"x": [[1]]}), 503, "No model is usable")
    problem(client.get("/models/tiny"), 503, "No model is usable")
    assert client.get("/models").json() == {"default": None, "models": [], "refused": []}
    assert "example" not in json.dumps(client.get("/openapi.json").json()["paths"])


def test_readiness_says_why_there_is_no_model(
    make_client: Any, problem: Any, tmp_path: Path
) -> None:
    (tmp_path / "one/1").mkdir(parents=True)
    problem(
        make_client(models=tmp_path).get("/readyz"), 503, "one@1 was refused, because one/1 has"
    )


def samples(client: Any) -> dict[tuple[str, ...], float]:
    text = client.get("/metrics").text
    families = text_string_to_metric_families(text)
    return {
        (s.name, *(s.labels[k] for k in sorted(s.labels) if k != "le")): s.value
        for family in families
        for s in family.samples
    }


def test_metrics_count_by_route_template(make_client: Any) -> None:
    client = make_client()
    for path in ("/models/tiny", "/models/nothing", "/a", "/b", "/moments?x=1"):
        client.get(path)
    client.request("BREW", "/moments")
    got = samples(client)
    count = "localmoments_requests_total"
    assert got[count, "GET", "/models/{name}", "200"] == 1
    assert got[count, "GET", "/models/{name}", "404"] == 1
    assert got[count, "GET", "other", "404"] == 2
    assert got[count, "GET", "/moments", "422"] == 1
    assert got[count, "other", "/moments", "405"] == 1
    assert got["localmoments_request_duration_seconds_count", "GET", "/models/{name}"] == 2
    assert got["localmoments_models",] == 1 and got["localmoments_models_refused",] == 1
    assert got["process_resident_memory_bytes",] > 1e6


def test_a_log_line_is_one_json_object() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("a", 40, "", 1, "%s\n", ("b",), sys.exc_info())
    record.fields = {"status": 500, "odd": {1}}
    text = JsonFormatter().format(record)
    line = json.loads(text)
    assert "\n" not in text and line["message"] == "b\n" and line["status"] == 500
    assert line["level"] == "error" and "ValueError: two" in line["exception"]
    assert line["time"].endswith("+00:00")


def test_the_examples_of_openapi_run_as_written(client: Any) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in ("/reconstruct", "/moments"):
        example = paths[path]["post"]["requestBody"]["content"]["application/json"]["example"]
        assert len(client.post(path, json=example).json()["x" if "mom" in path else "error"]) == 2
    parameters = {p["name"]: p for p in paths["/moments"]["get"]["parameters"]}
    point = quote(parameters["x"]["example"], safe="")
    assert client.get(f"/moments?x={point}").status_code == 200
    [name] = paths["/models/{name}"]["get"]["parameters"]
    assert client.get(f"/models/{name['example']}").json()["reference"] == "tiny@1"
    assert client.get("/docs").status_code == 200


def test_every_reference_in_openapi_resolves(client: Any) -> None:
    text = client.get("/openapi.json").text
    schemas = json.loads(text)["components"]["schemas"]
    for reference in {w.split('"')[0] for w in text.split("#/components/schemas/")[1:]}:
        assert reference in schemas
    assert "HTTPValidationError" not in text and "$defs" not in text


def test_models_lists_what_a_client_needs(client: Any) -> None:
    body = client.get("/models").json()
    assert body["default"] == "tiny@1"
    [model] = body["models"]
    assert (model["reference"], model["versions"], model["default"]) == ("tiny@1", ["1"], True)
    assert (model["input_dims"], model["image"], model["noise_levels"]) == (8, None, [0.2, 1.0])
    assert model["provider"] == "CPUExecutionProvider"
    assert model["kernels"]["gibbs"] == {"space": "input", "scale": 1.0}
    [refused] = body["refused"]
    assert refused["model"] == "tiny@2"
    assert refused["reason"].startswith("tiny/2/gibbs.onnx was altered")


def test_a_model_has_its_card_and_figures(client: Any, models: Path) -> None:
    body = client.get("/models/tiny").json()
    assert body == client.get("/models/tiny@1").json()
    assert body["card"] == (models / "tiny/1/card.md").read_text()
    manifest = json.loads((models / "tiny/1/manifest.json").read_text())
    same = ("alpha", "sigma", "kind", "loss", "hidden_dims", "features", "data", "libraries")
    assert all(body[name] == manifest[name] for name in same)
    assert body["figures"] == manifest["evaluation"]
    assert [r["model"] for r in body["refused"]] == ["tiny@2"]


@pytest.mark.parametrize(
    "name", ["nothing", "tiny@2", "tiny@01", "tiny@", "@1", "TINY", "..", "a\0"]
)
def test_an_unknown_model_is_a_404_that_lists_the_known_ones(
    client: Any, problem: Any, name: str
) -> None:
    problem(
        client.get(f"/models/{quote(name, safe='').replace('.', '%2E')}"), 404, "there are tiny"
    )
