"""The service as a user meets it: `python -m service` in a process, over HTTP.

Its model is a Gaussian's optimal auto-encoder, so that every moment is known in closed form:
N(m, C) in the model's units, α = σ², A = C (C + α)⁻¹, r(z) = m + A (z - m).
The trainer's commands have a folder and a conftest of their own.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from localmoments.artefact import MANIFEST, START_POINTS, WEIGHTS, Graph, Kernel
from localmoments.columns import Normaliser
from trainer.autoencoder import AutoEncoder
from trainer.chain_kernels import make_kernels
from trainer.config import make_recipe
from trainer.export import ChainSetup, describe, write_manifest
from trainer.graphs import kernel_graph, model_graphs, write_graph
from trainer.prepare import prepare

D, SIGMA = 4, 0.6


@dataclass(frozen=True)
class Truth:
    """What the model must say, in the user's units."""

    m: Any  # (d,), in the model's units, as C
    C: Any  # (d, d)
    units: Normaliser
    sigma: float = SIGMA

    @property
    def A(self) -> Any:
        return self.C @ np.linalg.inv(self.C + SIGMA**2 * np.eye(D))

    def r(self, x: Any) -> Any:
        z = (x - self.units.shift) / self.units.scale
        return self.units.to_user(self.m + (z - self.m) @ self.A)

    def score(self, x: Any) -> Any:
        z = (x - self.units.shift) / self.units.scale
        return -np.linalg.solve(self.C + SIGMA**2 * np.eye(D), z - self.m) / self.units.scale


Weights = Callable[[Normaliser], dict[str, Any]]  # by their names in the auto-encoder


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Normaliser]]:
    """An artefact of D columns with given weights and the graphs that are asked for here."""

    def build(name: str, model: dict[str, Any], criterion: dict[str, Any], weights: Weights):
        folder = tmp_path_factory.mktemp(name)
        x = np.random.default_rng(3).standard_normal((200, D)) * [1, 20, 0.3, 5] + [0, 9, 1, 2]
        np.save(folder.parent / "g.npy", x)
        data = {"source": str(folder.parent / "g.npy")}
        recipe = make_recipe({"name": name, "data": data, "model": model, "criterion": criterion})
        prepared = prepare(recipe)
        given = weights(prepared.normaliser)
        ae = AutoEncoder(prepared.architecture).eval()
        ae.load_state_dict({k: torch.tensor(w, dtype=torch.float32) for k, w in given.items()})
        gibbs = make_kernels(ae, SIGMA)["gibbs"]
        starts = torch.zeros(3, D)
        save_file({**ae.state_dict(), START_POINTS: starts}, folder / WEIGHTS)
        specs = {name: model_graphs(ae)[name] for name in ("reconstruct", "moments", "jacobian")}
        graphs = {
            name: Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
            for name, spec in {**specs, "gibbs": kernel_graph(gibbs)}.items()
        }
        chains = ChainSetup(
            {"gibbs": gibbs}, {"gibbs": 1.0}, "gibbs", starts, SIGMA, SIGMA, "noisy"
        )
        (folder / "card.md").write_text(f"# {name}\n")
        manifest = write_manifest(folder, describe(recipe, prepared, ae, chains, "1", graphs))
        assert manifest.kernels == {"gibbs": Kernel("gibbs", "input", gibbs.noise, 1.0)}
        return folder, prepared.normaliser

    return build


@pytest.fixture(scope="session")
def made(build: Callable[..., tuple[Path, Normaliser]]) -> tuple[Path, Truth]:
    """The Gaussian's artefact, and the truth about it."""
    rng = np.random.default_rng(4)
    Q, c = np.linalg.qr(rng.standard_normal((D, D)))[0], np.array([2.0, 0.7, 0.2, 0.03])
    m, C = rng.standard_normal(D), (Q * c) @ Q.T
    model = {"hidden": [D], "unit": "linear", "decoder": "linear", "tied": True}
    criterion = {"kind": "rcae", "alpha": SIGMA**2}
    folder, units = build("gaussian", model, criterion, lambda units: optimal(Truth(m, C, units)))
    return folder, Truth(m, C, units)


def optimal(truth: Truth) -> dict[str, Any]:
    """W with Wᵀ W = A, so that tied weights give r(z) = m + A (z - m)."""
    a, Q = np.linalg.eigh(truth.A)
    return {
        "encoder.0.weight": np.sqrt(a)[:, None] * Q.T,
        "encoder.0.bias": np.zeros(D),
        "decoder.0.bias": truth.m - truth.A @ truth.m,
    }


@pytest.fixture(scope="session")
def truth(made: tuple[Path, Truth]) -> Truth:
    return made[1]


@pytest.fixture(scope="session")
def put(made: tuple[Path, Truth]) -> Callable[..., Path]:
    """The artefact as a version of a model, there all at once."""

    def put(models: Path, version: int, name: str = "gaussian") -> Path:
        temporary = models / ".new"
        shutil.copytree(made[0], temporary)
        body = json.loads((temporary / MANIFEST).read_text())
        own = json.dumps(body | {"name": name, "version": str(version)})
        (temporary / MANIFEST).write_text(own)
        (models / name).mkdir(exist_ok=True)
        return temporary.rename(models / name / str(version))

    return put


class Service:
    """A process of its own on a free port, with a store of its own unless one is given."""

    def __init__(self, models: Path, **settings: object) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="lm-"))  # short: sockets' names must be
        defaults = {"port": 0, "threads": 1, "reload_seconds": 0.2, "store_folder": self._own / "s"}
        environment = {
            f"LOCALMOMENTS_{k.upper()}": str(v)
            for k, v in {"models": models, **defaults, **settings}.items()
        }
        self._log = self._own / "log"
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

    @property
    def address(self) -> tuple[str, int]:
        """For those who speak TCP."""
        return self.http.base_url.host, self.http.base_url.port or 0

    def log(self) -> list[dict[str, Any]]:
        """What stands in the log so far; every line is JSON."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code, and what stands in the log."""
        self.process.send_signal(number)
        return self.process.wait(timeout=30), self._log.read_text()

    def leave(self) -> None:
        if not self.http.is_closed and self.process.poll() is None:
            self.process.terminate()  # so that it ends its embedded store
        self.http.close()

    def close(self) -> None:
        self.leave()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.process.communicate()
        shutil.rmtree(self._own, ignore_errors=True)


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., Service]]:
    running: list[Service] = []

    def begin(models: Path, **settings: object) -> Service:
        running.append(Service(models, **settings))
        return running[-1]

    yield begin
    for service in running:
        service.leave()  # all at once, for each takes a second or two
    for service in running:
        service.close()


@pytest.fixture(scope="session")
def models(put: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    put(folder, 1)
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


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    def wait(condition: Callable[[], object], seconds: float = 20, every: float = 0.02) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(every)

    return wait


@pytest.fixture(scope="session")
def refused_start() -> Callable[..., str]:
    """What a start says that must end with exit code 2 and one sentence."""

    def run(folder: Path, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "service", *arguments], cwd=folder,
            env={**os.environ, **environment}, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 2 and done.stdout == ""
        [line] = done.stderr.splitlines()
        return line

    return run
