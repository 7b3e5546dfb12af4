"""The service as a person meets it: `python -m service` in a process, asked over HTTP.

Its model is a Gaussian's optimal auto-encoder, so that every moment is known in closed form:
N(m, C) in the model's units, α = σ², A = C (C + α)⁻¹, r(z) = m + A (z - m).
"""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import save_file

from service.core.manifest import MANIFEST, START_POINTS, WEIGHTS, Graph, Kernel
from service.core.normaliser import Normaliser
from trainer.autoencoder import AutoEncoder
from trainer.config import make_recipe
from trainer.export import Chains, describe, finish
from trainer.graphs import kernel_graph, make_kernels, model_graphs
from trainer.onnx_files import write_graph
from trainer.prepare import prepare

D, SIGMA = 4, 0.6
NPY, NPZ = "application/x-npy", "application/x-npz"
ALL = "mean,tangents,covariance,score"


@dataclass(frozen=True)
class Truth:
    """What the model must say, in the user's units."""

    m: Any  # (d,), in the model's units, as C
    C: Any  # (d, d)
    units: Normaliser

    @property
    def A(self) -> Any:
        return self.C @ np.linalg.inv(self.C + SIGMA**2 * np.eye(D))

    def r(self, x: Any) -> Any:
        z = (x - self.units.shift) / self.units.scale
        return self.units.to_user(self.m + (z - self.m) @ self.A)

    def score(self, x: Any) -> Any:
        z = (x - self.units.shift) / self.units.scale
        return -np.linalg.solve(self.C + SIGMA**2 * np.eye(D), z - self.m) / self.units.scale


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """An artefact with the graphs that are asked for here, and the truth about it."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("gaussian")
    np.save(folder.parent / "g.npy", rng.standard_normal((200, D)) * [1, 20, 0.3, 5] + [0, 9, 1, 2])
    recipe = make_recipe({
        "name": "gaussian",
        "data": {"source": str(folder.parent / "g.npy")},
        "model": {"hidden": [D], "unit": "linear", "decoder": "linear", "tied": True},
        "criterion": {"kind": "rcae", "alpha": SIGMA**2},
    })  # fmt: skip
    prepared = prepare(recipe)
    Q, c = np.linalg.qr(rng.standard_normal((D, D)))[0], np.array([2.0, 0.7, 0.2, 0.03])
    truth = Truth(rng.standard_normal(D), (Q * c) @ Q.T, prepared.normaliser)
    ae = optimal(AutoEncoder(prepared.architecture), Q, c, truth)
    gibbs = make_kernels(ae, SIGMA)["gibbs"]
    starts = torch.zeros(3, D)
    save_file({**ae.state_dict(), START_POINTS: starts}, folder / WEIGHTS)
    specs = {name: model_graphs(ae)[name] for name in ("reconstruct", "moments")}
    graphs = {
        name: Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
        for name, spec in {**specs, "gibbs": kernel_graph(gibbs)}.items()
    }
    chains = Chains({"gibbs": gibbs}, {"gibbs": 1.0}, "gibbs", starts, SIGMA, "noisy")
    (folder / "card.md").write_text("# A Gaussian\n")
    manifest = finish(folder, describe(recipe, prepared, ae, chains, "1", graphs))
    assert manifest.kernels == {"gibbs": Kernel("gibbs", "input", gibbs.noise, 1.0)}
    return folder, truth


def optimal(ae: AutoEncoder, Q: Any, c: Any, truth: Truth) -> AutoEncoder:
    weights = {
        "encoder.0.weight": np.sqrt(c / (c + SIGMA**2))[:, None] * Q.T,
        "encoder.0.bias": np.zeros(D),
        "decoder.0.bias": truth.m - truth.A @ truth.m,
    }
    tensors = {name: torch.tensor(w, dtype=torch.float32) for name, w in weights.items()}
    ae.eval().load_state_dict(tensors)
    return ae


@pytest.fixture(scope="session")
def truth(made: tuple[Path, Truth]) -> Truth:
    return made[1]


def put(artefact: Path, models: Path, version: int, name: str = "gaussian") -> Path:
    """The artefact as a version of a model, there all at once."""
    temporary = models / ".new"
    shutil.copytree(artefact, temporary)
    body = json.loads((temporary / MANIFEST).read_text()) | {"name": name, "version": str(version)}
    (temporary / MANIFEST).write_text(json.dumps(body))
    (models / name).mkdir(exist_ok=True)
    return temporary.rename(models / name / str(version))


class Service:
    """A process of its own on a free port."""

    def __init__(self, models: Path, **settings: object) -> None:
        own = {"port": 0, "models": models, "threads": 1, "reload_seconds": 0.2, **settings}
        environment = {f"LOCALMOMENTS_{k.upper()}": str(v) for k, v in own.items()}
        handle, name = tempfile.mkstemp(".log")
        os.close(handle)
        self._log = Path(name)
        with self._log.open("w") as log:  # a pipe that nobody reads would fill up
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service"],
                cwd=models, env={**os.environ, **environment}, text=True,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self.process.stdout
        self.announcement = self.process.stdout.readline()
        found = re.search(r"http://\S+?:\d+", self.announcement)
        self.http = httpx.Client(base_url=found[0] if found else "http://none", timeout=30)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code, and what stands in the log."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30), self._log.read_text()

    def close(self) -> None:
        self.http.close()
        self.process.kill()
        self.process.communicate()
        self._log.unlink()


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., Service]]:
    running: list[Service] = []

    def begin(models: Path, **settings: object) -> Service:
        running.append(Service(models, **settings))
        return running[-1]

    yield begin
    for service in running:
        service.close()


@pytest.fixture(scope="session")
def models(made: tuple[Path, Truth], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    put(made[0], folder, 1)
    return folder


@pytest.fixture(scope="session")
def service(start: Callable[..., Service], models: Path) -> Service:
    return start(models, max_body_bytes=100_000)


@pytest.fixture(scope="session")
def http(service: Service) -> httpx.Client:
    return service.http


@pytest.fixture
def x(truth: Truth) -> Any:
    """Points around the data, in the user's units."""
    z = np.random.default_rng(5).standard_normal((9, D))
    return truth.units.to_user(z).round(3)


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def test_it_says_where_it_serves_and_what(service: Service, http: httpx.Client) -> None:
    said = f"Serving gaussian@1 (default gaussian@1) at {http.base_url}"
    assert service.announcement.strip() == str(said).rstrip("/")
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"ready": True, "models": ["gaussian@1"]}


def test_reconstructions_are_the_gaussians(http: httpx.Client, truth: Truth, x: Any) -> None:
    body = http.post("/reconstruct", json={"x": x.tolist()}).json()
    np.testing.assert_allclose(body["reconstruction"], truth.r(x), rtol=1e-5, atol=1e-4)
    rms = np.sqrt(np.square(truth.r(x) - x).mean(1))
    np.testing.assert_allclose(body["error"], rms, rtol=1e-4)
    headers = {"content-type": NPY, "accept": NPY}
    raw = http.post("/reconstruct?model=gaussian@1", content=npy(x), headers=headers)
    assert np.array_equal(np.load(io.BytesIO(raw.content)), body["reconstruction"])


def test_inverted_moments_are_the_gaussians_own(http: httpx.Client, truth: Truth, x: Any) -> None:
    """m and C, wherever one asks."""
    asked = {"x": x.tolist(), "estimator": "inverted", "include": ALL.split(",")}
    body = http.post("/moments", json=asked).json()
    C, scale = truth.units.covariance_to_user(truth.C), truth.units.scale
    for i in range(len(x)):
        np.testing.assert_allclose(body["mean"][i], truth.units.to_user(truth.m), rtol=1e-3)
        away = (np.array(body["covariance"][i]) - C) / np.outer(scale, scale)
        assert np.abs(away).max() < 1e-3
        np.testing.assert_allclose(body["score"][i], truth.score(x[i]), rtol=1e-3, atol=1e-5)


def test_asymptotic_moments_are_the_posteriors(http: httpx.Client, truth: Truth, x: Any) -> None:
    """E and Cov[X | X + σDε = x]; the tangents are the eigenvectors of D αA D."""
    covariance = truth.units.covariance_to_user(SIGMA**2 * truth.A)
    values, vectors = np.linalg.eigh(covariance)
    for row in x[:3]:
        query = ",".join(map(str, row))
        body = http.get(f"/moments?x={query}&include={ALL}&rank=2").json()
        np.testing.assert_allclose(body["mean"], truth.r(row), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(body["covariance"], covariance, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(body["eigenvalues"], values[::-1][:2], rtol=1e-4)
        cosines = np.abs(np.array(body["tangents"]) @ vectors[:, ::-1][:, :2])
        np.testing.assert_allclose(cosines, np.eye(2), atol=1e-3)


def test_json_and_binary_answers_hold_the_same_bits(http: httpx.Client, x: Any) -> None:
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


GOOD = {"x": [[0.0] * D]}
BAD: dict[str, tuple[int, str, dict[str, Any]]] = {
    "wrong width": (422, "3 columns, but gaussian@1 takes 4", {"json": {"x": [[1, 2, 3]]}}),
    "NaN": (422, "not JSON", {"content": b'{"x": [[NaN, 0, 0, 0]]}'}),
    "infinity": (422, "not JSON", {"content": b'{"x": [[1e999, 0, 0, 0]]}'}),
    "NaN in an array": (422, "x[0][1] is nan",
                        {"content": npy([[0, np.nan, 0, 0]]), "headers": {"content-type": NPY}}),
    "1e38": (422, "too far", {"json": {"x": [[0, 1e38, 0, 0]]}}),
    "no rows": (422, "no rows", {"json": {"x": []}}),
    "empty rows": (422, "empty rows", {"json": {"x": [[], []]}}),
    "half a body": (422, "not JSON", {"content": b'{"x": [[1, 2'}),
    "half an array": (422, "not as long",
                      {"content": npy(np.ones((2, D)))[:-9], "headers": {"content-type": NPY}}),
    "no body": (422, "not JSON", {}),
    "unknown model": (404, "there are gaussian", {"json": {**GOOD, "model": "other"}}),
    "a path for a model": (404, "'../../etc/passwd'",
                           {"json": {**GOOD, "model": "../../etc/passwd"}}),
    "unknown parameter": (422, "stesp", {"json": {**GOOD, "stesp": 1}}),
    "sigma where there is one level": (422, "leave sigma out", {"json": {**GOOD, "sigma": 0.5}}),
    "too many rows": (413, "5000 rows, but 4096",
                      {"content": npy(np.ones((5000, D), "u1")), "headers": {"content-type": NPY}}),
    "too long": (413, "larger than 100000 bytes", {"content": b" " * 100_001}),
    "too long, by and by": (413, "larger than 100000 bytes",
                            {"content": (b" " * 5_000 for _ in range(21))}),
    "another format": (415, "text/csv", {"content": b"1", "headers": {"content-type": "text/csv"}}),
    "compressed": (415, "gzip", {"content": b"1", "headers": {"content-encoding": "gzip"}}),
    "another answer": (406, "x-npy", {"json": GOOD, "headers": {"accept": "image/png"}}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_problem_and_the_next_request_is_served(
    http: httpx.Client, case: str
) -> None:
    status, words, sent = BAD[case]
    answer = http.post("/reconstruct", **sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"] and answer.json()["error"] == answer.json()["detail"]
    assert http.post("/reconstruct", json=GOOD).status_code == 200


def test_a_gigabyte_is_refused_unread(service: Service, http: httpx.Client) -> None:
    before = psutil.Process(service.process.pid).memory_info().rss
    with socket.create_connection((http.base_url.host, http.base_url.port or 0), 30) as raw:
        raw.sendall(b"POST /reconstruct HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
        head = raw.recv(65536)
        assert head.startswith(b"HTTP/1.1 413 ")
        while raw.recv(65536):  # until the server closes the connection
            pass
    assert psutil.Process(service.process.pid).memory_info().rss < before + 20e6


def test_the_examples_of_the_description_run_as_written(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    for path in ("/reconstruct", "/moments"):
        example = paths[path]["post"]["requestBody"]["content"]["application/json"]["example"]
        assert http.post(path, json=example).status_code == 200
    [point] = [p["example"] for p in paths["/moments"]["get"]["parameters"] if p["name"] == "x"]
    assert http.get("/moments", params={"x": point}).status_code == 200


def test_nothing_that_only_training_needs_is_loaded(service: Service, http: httpx.Client) -> None:
    assert http.post("/moments", json=GOOD).status_code == 200
    program = "import sys, service.__main__; print(*sorted(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert "onnxruntime" in loaded
    assert loaded.isdisjoint({"torch", "trainer", "onnx", "scipy", "sklearn", "matplotlib"})
    if sys.platform == "linux":  # the libraries of the process itself
        maps = Path(f"/proc/{service.process.pid}/maps").read_text()
        assert "onnxruntime" in maps and "/torch/" not in maps


def test_versions_come_break_and_go_without_a_restart(
    made: tuple[Path, Truth], start: Callable[..., Service], tmp_path: Path
) -> None:
    put(made[0], tmp_path, 1)
    http = start(tmp_path).http
    statuses: list[int] = []
    stop = threading.Event()

    def keep_asking() -> None:
        with httpx.Client(base_url=http.base_url, timeout=30) as other:
            while not stop.is_set():
                statuses.append(other.post("/reconstruct", json=GOOD).status_code)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        assert answering(http) == "gaussian@1"
        put(made[0], tmp_path, 2)
        wait_for(lambda: answering(http) == "gaussian@2")
        assert answering(http, "gaussian@1") == "gaussian@1"
        broken = put(made[0], tmp_path, 3)
        (broken / "moments.onnx").write_bytes(b"broken")
        wait_for(lambda: "gaussian@3" in refusals(http))
        assert "moments.onnx was altered" in refusals(http)["gaussian@3"]
        assert answering(http) == "gaussian@2" and refused_gauge(http) == 1
        put(made[0], tmp_path, 1, name="another")
        wait_for(lambda: answering(http, "another") == "another@1")
        shutil.rmtree(broken)
        wait_for(lambda: not refusals(http))
    finally:
        stop.set()
        asking.join()
    assert len(statuses) > 10 and set(statuses) == {200}


def answering(http: httpx.Client, model: str = "gaussian") -> str:
    answer = http.post("/reconstruct", json={**GOOD, "model": model}).json()
    return str(answer.get("model", answer.get("detail")))


def refusals(http: httpx.Client) -> dict[str, str]:
    return {r["model"]: r["reason"] for r in http.get("/models").json()["refused"]}


def refused_gauge(http: httpx.Client) -> float:
    found = re.search(r"^localmoments_models_refused (\S+)$", http.get("/metrics").text, re.M)
    return float(found[1]) if found else -1


def test_a_broken_model_at_the_start_is_told_and_the_rest_served(
    made: tuple[Path, Truth], start: Callable[..., Service], tmp_path: Path
) -> None:
    put(made[0], tmp_path, 1)
    (put(made[0], tmp_path, 1, name="bad") / "card.md").write_text("altered")
    said = start(tmp_path).announcement
    assert "Serving gaussian@1 (default gaussian@1) at" in said
    assert "refused: bad@1 (bad/1/card.md was altered" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(
    start: Callable[..., Service], models: Path, number: signal.Signals
) -> None:
    service = start(models)
    service.http.post("/reconstruct", json=GOOD, headers={"x-request-id": "last-one"})
    code, log = service.end(number)
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]  # every line is JSON
    [line] = [line for line in lines if line.get("request_id") == "last-one"]
    assert (line["path"], line["status"], line["level"]) == ("/reconstruct", 200, "info")


def refused_start(folder: Path, *arguments: str, **environment: str) -> str:
    """What a start says that must end with exit code 2 and one sentence."""
    run = subprocess.run(
        [sys.executable, "-m", "service", *arguments],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert run.returncode == 2 and run.stdout == ""
    [line] = run.stderr.splitlines()
    return line


def test_a_port_in_use_is_one_sentence(http: httpx.Client, tmp_path: Path) -> None:
    port = str(http.base_url.port)
    line = refused_start(tmp_path, LOCALMOMENTS_PORT=port)
    assert line == f"error: 127.0.0.1:{port} cannot be listened on: Address already in use."


def test_a_wrong_setting_is_one_sentence(tmp_path: Path) -> None:
    assert "LOCALMOMENTS_PORT is 'x'" in refused_start(tmp_path, LOCALMOMENTS_PORT="x")
    (tmp_path / ".env").write_text("LOCALMOMENTS_LOG_LEVEL=loud\n")
    assert "LOCALMOMENTS_LOG_LEVEL is 'loud'" in refused_start(tmp_path)
    line = refused_start(
        tmp_path, LOCALMOMENTS_HOST="no.such.host.invalid", LOCALMOMENTS_LOG_LEVEL="info"
    )
    assert "no.such.host.invalid:8000 cannot be listened on" in line


def test_without_models_it_lives_and_waits_for_one(
    made: tuple[Path, Truth], start: Callable[..., Service], tmp_path: Path
) -> None:
    service = start(tmp_path)
    assert service.announcement.startswith("Serving no model at http://")
    assert service.http.get("/healthz").status_code == 200
    not_ready = service.http.get("/readyz")
    assert not_ready.status_code == 503 and "No model is usable" in not_ready.json()["detail"]
    put(made[0], tmp_path, 1)
    wait_for(lambda: service.http.get("/readyz").status_code == 200)
