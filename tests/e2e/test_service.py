"""Reconstructions and moments of a Gaussian over HTTP equal the closed forms."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np

NPY, NPZ = "application/x-npy", "application/x-npz"
ALL = "mean,tangents,covariance,score"


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_the_service_announces_its_models_and_address(service: Any, http: httpx.Client) -> None:
    said = f"Serving gaussian@1 (default gaussian@1) at {http.base_url}"
    assert service.announcement.strip() == str(said).rstrip("/")
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"ready": True, "models": ["gaussian@1"]}


def test_reconstructions_equal_the_closed_form(http: httpx.Client, truth: Any, x: Any) -> None:
    body = http.post("/reconstruct", json={"x": x.tolist()}).json()
    np.testing.assert_allclose(body["reconstruction"], truth.r(x), rtol=1e-5, atol=1e-4)
    rms = np.sqrt(np.square((truth.r(x) - x) / truth.units.scale).mean(1))  # standard units
    np.testing.assert_allclose(body["error"], rms, rtol=1e-4)
    headers = {"content-type": NPY, "accept": NPY}
    raw = http.post("/reconstruct?model=gaussian@1", content=npy(x), headers=headers)
    assert np.array_equal(np.load(io.BytesIO(raw.content)), np.float32(body["reconstruction"]))


def test_inverted_moments_are_the_mean_and_covariance_of_the_data(
    http: httpx.Client, truth: Any, x: Any
) -> None:
    """They are m and C at every point."""
    asked = {"x": x.tolist(), "estimator": "inverted", "include": ALL.split(",")}
    body = http.post("/moments", json=asked).json()
    C, scale = truth.units.covariance_to_user(truth.C), truth.units.scale
    for i in range(len(x)):
        np.testing.assert_allclose(body["mean"][i], truth.units.to_user(truth.m), rtol=1e-3)
        away = (np.array(body["covariance"][i]) - C) / np.outer(scale, scale)
        assert np.abs(away).max() < 1e-3
        np.testing.assert_allclose(body["score"][i], truth.score(x[i]), rtol=1e-3, atol=1e-5)


def test_asymptotic_moments_are_those_of_the_posterior(
    http: httpx.Client, truth: Any, x: Any
) -> None:
    """E and Cov[X | X + σDε = x]; the tangents are the eigenvectors of D αA D."""
    covariance = truth.units.covariance_to_user(truth.sigma**2 * truth.A)
    values, vectors = np.linalg.eigh(covariance)
    for row in x[:3]:
        query = ",".join(map(str, row))
        body = http.get(f"/moments?x={query}&include={ALL}&rank=2").json()
        np.testing.assert_allclose(body["mean"], truth.r(row), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(body["covariance"], covariance, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(body["eigenvalues"], values[::-1][:2], rtol=1e-4)
        cosines = np.abs(np.array(body["tangents"]) @ vectors[:, ::-1][:, :2])
        np.testing.assert_allclose(cosines, np.eye(2), atol=1e-3)


def test_json_and_binary_answers_have_the_same_bits(http: httpx.Client, x: Any) -> None:
    parameters = {"estimator": "inverted", "include": ALL, "rank": 3}
    for sent in (
        {"json": {"x": x.tolist()}},
        {"content": npy(x), "headers": {"content-type": NPY}},
    ):
        as_json = http.post("/moments", params=parameters, **sent).json()
        headers = {**sent.get("headers", {}), "accept": NPZ}
        answer = http.post("/moments", params=parameters, **{**sent, "headers": headers})
        arrays = np.load(io.BytesIO(answer.content))
        assert set(arrays) == set(as_json)
        assert all(np.array_equal(arrays[name], as_json[name]) for name in arrays)


def test_the_examples_of_openapi_run_as_written(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    for path in ("/reconstruct", "/moments"):
        example = paths[path]["post"]["requestBody"]["content"]["application/json"]["example"]
        assert http.post(path, json=example).status_code == 200
    [point] = [p["example"] for p in paths["/moments"]["get"]["parameters"] if p["name"] == "x"]
    assert http.get("/moments", params={"x": point}).status_code == 200


def test_the_service_loads_nothing_that_only_training_needs(
    service: Any, http: httpx.Client
) -> None:
    assert http.post("/moments", json={"x": [[0.0] * 4]}).status_code == 200
    program = "import sys, service.__main__, service.server; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "onnxruntime" in loaded
    assert loaded.isdisjoint({"torch", "trainer", "onnx", "scipy", "sklearn", "matplotlib"})
    if sys.platform == "linux":  # the libraries of the process itself
        maps = Path(f"/proc/{service.process.pid}/maps").read_text()
        assert "onnxruntime" in maps and "/torch/" not in maps
