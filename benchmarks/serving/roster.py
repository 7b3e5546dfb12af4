"""Who takes part, how each is started, and what it is asked."""

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from serving import calls
from serving.calls import Array, Call
from serving.servers import PEERS, Running, free_port, our_service, started
from serving.venvs import Venv, venv_of

LIMIT = "asgi"  # not a peer: what a hand-tuned loop can do
OURS, OURS_IN_TWO = "localmoments", "localmoments-2"


@dataclass(frozen=True)
class Setup:
    """What is the same for all servers."""

    models: Path
    artefact: Path
    venvs: Path
    threads: int = 1
    max_batch: int = 64
    wait_seconds: float = 0.002
    settings: tuple[tuple[str, str], ...] = ()  # of our service, beyond its defaults

    def environment(self, port: int) -> dict[str, str]:
        return {
            "BENCH_ARTEFACT": str(self.artefact.absolute()), "BENCH_PORT": str(port),
            "BENCH_THREADS": str(self.threads), "BENCH_MAX_BATCH": str(self.max_batch),
            "BENCH_WAIT_SECONDS": str(self.wait_seconds), "PYTHONPATH": str(PEERS),
            "OMP_NUM_THREADS": str(self.threads), "ORT_DISABLE_TELEMETRY": "1",
            "BENTOML_DO_NOT_TRACK": "True", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        }  # fmt: skip

    def service(self, **more: str) -> AbstractContextManager[Running]:
        return our_service(self.models, self.threads, **{**dict(self.settings), **more})


@dataclass(frozen=True)
class Contestant:
    """A server of this comparison."""

    name: str
    label: str
    one: Callable[[str, Array], Call]
    block: Callable[[str, Array], Call]
    one_path: str = "/reconstruct"
    block_path: str = "/reconstruct"
    command: Callable[[Venv, int], list[str]] | None = None  # None: our own service
    processes: int = 1  # that share the threads

    def start(self, setup: Setup) -> AbstractContextManager[Running]:
        setup = replace(setup, threads=max(1, setup.threads // self.processes))
        if self.command is None:
            return setup.service(workers=str(self.processes))
        return self._start_peer(setup)

    @contextlib.contextmanager
    def _start_peer(self, setup: Setup) -> Iterator[Running]:
        assert self.command is not None
        package = self.name.partition("-")[0]  # plain-2 is of plain's
        venv, port = venv_of(package, setup.venvs), free_port()
        environment = setup.environment(port)
        if package == "mlserver":
            environment |= _mlserver(setup, port)
        with started(self.name, self.command(venv, port), environment, port) as running:
            yield running


def _uvicorn(app: str, *more: str) -> Callable[[Venv, int], list[str]]:
    return lambda venv, port: [
        venv.tool("uvicorn"), app, "--port", str(port), "--no-access-log", "--log-level", "warning",
        *more,
    ]  # fmt: skip


def _script(name: str) -> Callable[[Venv, int], list[str]]:
    return lambda venv, port: [venv.tool("python"), str(PEERS / name)]


def _bentoml(venv: Venv, port: int) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(port), "--working-dir", str(PEERS)]
    return [venv.tool("bentoml"), "serve", "bento:Reconstruct", *where]


def _mlserver(setup: Setup, port: int) -> dict[str, str]:
    """MLServer's settings, by environment as its documentation has them; one process, because its
    parallel workers do not start with the uvloop that it installs."""
    return {
        "MLSERVER_HTTP_PORT": str(port), "MLSERVER_GRPC_PORT": str(free_port()),
        "MLSERVER_METRICS_PORT": str(free_port()), "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_PARALLEL_WORKERS": "0", "MLSERVER_DEBUG": "false",
        "MLSERVER_GZIP_ENABLED": "false", "MLSERVER_MODEL_NAME": "deep",
        "MLSERVER_MODEL_IMPLEMENTATION": "ml.Reconstruct",
        "MLSERVER_MODEL_MAX_BATCH_SIZE": str(setup.max_batch),
        "MLSERVER_MODEL_MAX_BATCH_TIME": str(setup.wait_seconds),
    }  # fmt: skip


V2 = "/v2/models/deep/infer"
ROSTER = (
    Contestant(OURS, "this service", calls.rows, calls.npy),
    Contestant(OURS_IN_TWO, "this service, 2 workers", calls.rows, calls.npy, processes=2),
    Contestant("asgi", "bare ASGI loop", calls.rows, calls.npy,
               command=_uvicorn("asgi:app", "--loop", "uvloop", "--http", "httptools",
                                "--lifespan", "off")),
    Contestant("plain", "FastAPI + pydantic", calls.rows, calls.npy, block_path="/npy",
               command=_uvicorn("plain:app")),
    Contestant("plain-2", "FastAPI + pydantic, 2 workers", calls.rows, calls.npy,
               block_path="/npy", command=_uvicorn("plain:app", "--workers", "2"), processes=2),
    Contestant("litserve", "LitServe", calls.rows, calls.lit_block, "/predict", "/predict",
               _script("lit.py")),
    Contestant("bentoml", "BentoML", calls.bento_rows, calls.raw, block_path="/block",
               command=_bentoml),
    Contestant("mlserver", "MLServer", calls.v2_rows, calls.v2_block, V2, V2,
               lambda venv, port: [venv.tool("mlserver"), "start", str(PEERS)]),
    Contestant("ray", "Ray Serve", calls.rows, calls.npy, "/", "/", _script("ray_serve.py")),
)  # fmt: skip


def pixels(artefact: Path, rows: int, seed: int = 0) -> Array:
    """Rows like the model's data, in the user's units, with all the digits of a float32."""
    body = json.loads((artefact / "manifest.json").read_text())
    rng = np.random.default_rng(seed)
    z = np.clip(rng.normal(0.2, 0.3, (rows, body["input_dims"])), 0, 1)
    shift, scale = (np.asarray(body["normaliser"][key]) for key in ("shift", "scale"))
    x: Array = (z * scale + shift).astype(np.float32)
    return x
