"""The servers of the comparison: how each is started, and what is sent to it.

A single row is JSON for every server. A block of rows uses the server's best binary format: `.npy`
where a body can be raw bytes, base64 of an `.npy` in JSON for LitServe and MLServer.
"""

import base64
import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from serving.load import END, build_request
from serving.servers import (
    DEPLOYMENT_HEADERS,
    PEERS,
    ROOT,
    Server,
    Venv,
    find_free_port,
    install_peer,
    start_server,
    start_service,
)

Array = NDArray[Any]
NPY = "application/x-npy"
JSON_HEADERS = {"content_type": "application/json", "accept": "application/json"}
NPY_HEADERS = {"content_type": NPY, "accept": NPY}

OURS, DEPLOYED, PREVIOUS = "localmoments", "localmoments-deployed", "localmoments-previous"
LIMIT = "asgi"  # not a peer: a hand-tuned loop without a framework


@dataclass(frozen=True)
class Setup:
    """What all servers share."""

    models: Path
    artefact: Path
    venvs: Path
    threads: int = 1
    max_batch: int = 64
    wait_seconds: float = 0.002  # batching timeout of the peers
    settings: Mapping[str, str] = field(default_factory=dict)  # of our service
    previous: Path | None = None  # checkout of another version to compare with

    def make_environment(self, port: int) -> dict[str, str]:
        """Environment variables of a peer."""
        return {
            "BENCH_ARTEFACT": str(self.artefact.absolute()), "BENCH_PORT": str(port),
            "BENCH_THREADS": str(self.threads), "BENCH_MAX_BATCH": str(self.max_batch),
            "BENCH_WAIT_SECONDS": str(self.wait_seconds), "PYTHONPATH": str(PEERS),
            "OMP_NUM_THREADS": str(self.threads), "ORT_DISABLE_TELEMETRY": "1",
            "BENTOML_DO_NOT_TRACK": "True", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        }  # fmt: skip

    def start(
        self, *, with_keys: bool = False, checkout: Path = ROOT, **settings: str
    ) -> AbstractContextManager[Server]:
        """Start our service, or that of another checkout."""
        return start_service(
            self.models,
            self.threads,
            with_keys=with_keys,
            checkout=checkout,
            **{**self.settings, **settings},
        )


@dataclass(frozen=True)
class Call:
    """A request, and how to read the array in its response."""

    data: bytes
    read: Callable[[bytes], Array]

    def with_headers(self, headers: Mapping[str, str]) -> "Call":
        lines = "".join(f"\r\n{name.replace('_', '-')}: {v}" for name, v in headers.items())
        return Call(self.data.replace(END, lines.encode() + END, 1), self.read)


def write_npy(x: Array) -> bytes:
    out = io.BytesIO()
    np.save(out, x)
    return out.getvalue()


def read_npy(body: bytes) -> Array:
    array: Array = np.load(io.BytesIO(body), allow_pickle=False)
    return array


def _make_json_call(path: str, body: Any, read: Callable[[Any], Any]) -> Call:
    text = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    data = build_request("POST", path, text, **JSON_HEADERS)
    return Call(data, lambda response: np.asarray(read(json.loads(response))))


def make_rows_call(path: str, x: Array) -> Call:
    return _make_json_call(path, {"x": x}, lambda response: response["reconstruction"])


def make_npy_call(path: str, x: Array) -> Call:
    return Call(build_request("POST", path, write_npy(x), **NPY_HEADERS), read_npy)


def _make_bento_rows_call(path: str, x: Array) -> Call:
    return _make_json_call(path, {"x": x}, lambda response: response)


def _make_bento_block_call(path: str, x: Array) -> Call:
    data = build_request("POST", path, write_npy(x), content_type="application/octet-stream")
    return Call(data, read_npy)


def _make_lit_block_call(path: str, x: Array) -> Call:
    body = orjson.dumps({"npy": base64.b64encode(write_npy(x)).decode()})
    return Call(build_request("POST", path, body, **JSON_HEADERS), read_npy)


def _make_oip_rows_call(path: str, x: Array) -> Call:
    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel()}

    def read(response: Any) -> Array:
        output = response["outputs"][0]
        return np.asarray(output["data"]).reshape(output["shape"])

    return _make_json_call(path, {"inputs": [tensor]}, read)


def _make_oip_block_call(path: str, x: Array) -> Call:
    text = base64.b64encode(write_npy(x)).decode()
    tensor = {"name": "npy", "shape": [1, 1], "datatype": "BYTES", "data": [text],
              "parameters": {"content_type": "base64"}}  # fmt: skip

    def read(response: bytes) -> Array:
        return read_npy(base64.b64decode(json.loads(response)["outputs"][0]["data"][0]))

    body = orjson.dumps({"inputs": [tensor]})
    return Call(build_request("POST", path, body, **JSON_HEADERS), read)


@dataclass(frozen=True)
class Participant:
    """A server of the comparison."""

    name: str
    label: str
    make_row: Callable[[str, Array], Call]
    make_block: Callable[[str, Array], Call]
    row_path: str = "/reconstruct"
    block_path: str = "/reconstruct"
    command: Callable[[Venv, int], list[str]] | None = None  # None: our service
    headers: Mapping[str, str] = field(default_factory=dict)  # added to every request

    def make_calls(self, x: Array) -> tuple[Call, Call]:
        """Return the request for the first row of x, and that for all rows."""
        row = self.make_row(self.row_path, x[:1])
        block = self.make_block(self.block_path, x)
        return row.with_headers(self.headers), block.with_headers(self.headers)

    def start(self, setup: Setup) -> AbstractContextManager[Server]:
        if self.command is not None:
            return self._start_peer(setup)
        if self.name == PREVIOUS:
            assert setup.previous is not None
            return setup.start(checkout=setup.previous)
        return setup.start(with_keys=self.name == DEPLOYED)

    @contextlib.contextmanager
    def _start_peer(self, setup: Setup) -> Iterator[Server]:
        assert self.command is not None
        venv, port = install_peer(self.name, setup.venvs), find_free_port()
        environment = setup.make_environment(port)
        if self.name == "mlserver":
            environment |= _make_mlserver_settings(setup, port)
        with start_server(self.name, self.command(venv, port), environment, port) as server:
            yield server


def _run_uvicorn(app: str, *options: str) -> Callable[[Venv, int], list[str]]:
    return lambda venv, port: [
        venv.find_tool("uvicorn"), app, "--port", str(port), "--no-access-log",
        "--log-level", "warning", *options,
    ]  # fmt: skip


def _run_script(name: str) -> Callable[[Venv, int], list[str]]:
    return lambda venv, port: [venv.find_tool("python"), str(PEERS / name)]


def _run_bentoml(venv: Venv, port: int) -> list[str]:
    options = ["--host", "127.0.0.1", "--port", str(port), "--working-dir", str(PEERS)]
    return [venv.find_tool("bentoml"), "serve", "bento:Reconstruct", *options]


def _make_mlserver_settings(setup: Setup, port: int) -> dict[str, str]:
    """MLServer reads its settings from the environment.

    It runs in one process, because its parallel workers do not start with the uvloop that it
    installs.
    """
    return {
        "MLSERVER_HTTP_PORT": str(port), "MLSERVER_GRPC_PORT": str(find_free_port()),
        "MLSERVER_METRICS_PORT": str(find_free_port()), "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_PARALLEL_WORKERS": "0", "MLSERVER_DEBUG": "false",
        "MLSERVER_GZIP_ENABLED": "false", "MLSERVER_MODEL_NAME": "deep",
        "MLSERVER_MODEL_IMPLEMENTATION": "ml.Reconstruct",
        "MLSERVER_MODEL_MAX_BATCH_SIZE": str(setup.max_batch),
        "MLSERVER_MODEL_MAX_BATCH_TIME": str(setup.wait_seconds),
    }  # fmt: skip


OIP = "/v2/models/deep/infer"
ROSTER = (
    Participant(OURS, "this service", make_rows_call, make_npy_call),
    Participant(DEPLOYED, "this service, API keys and proxy headers", make_rows_call,
                make_npy_call, headers=DEPLOYMENT_HEADERS),
    Participant(PREVIOUS, "this service, previous version", make_rows_call, make_npy_call),
    Participant(LIMIT, "bare ASGI loop", make_rows_call, make_npy_call,
                command=_run_uvicorn("asgi:app", "--loop", "uvloop", "--http", "httptools",
                                     "--lifespan", "off")),
    Participant("plain", "FastAPI + pydantic", make_rows_call, make_npy_call, block_path="/npy",
                command=_run_uvicorn("plain:app")),
    Participant("litserve", "LitServe", make_rows_call, _make_lit_block_call, "/predict",
                "/predict", _run_script("lit.py")),
    Participant("bentoml", "BentoML", _make_bento_rows_call, _make_bento_block_call,
                block_path="/block", command=_run_bentoml),
    Participant("mlserver", "MLServer", _make_oip_rows_call, _make_oip_block_call, OIP, OIP,
                lambda venv, port: [venv.find_tool("mlserver"), "start", str(PEERS)]),
    Participant("ray", "Ray Serve", make_rows_call, make_npy_call, "/", "/",
                _run_script("ray_serve.py")),
)  # fmt: skip


def draw_pixels(artefact: Path, rows: int, seed: int = 0) -> Array:
    """Draw rows like the model's data, in the user's units, with all digits of a float32."""
    body = json.loads((artefact / "manifest.json").read_text())
    rng = np.random.default_rng(seed)
    z = np.clip(rng.normal(0.2, 0.3, (rows, body["input_dims"])), 0, 1)
    shift, scale = (np.asarray(body["normaliser"][key]) for key in ("shift", "scale"))
    x: Array = (z * scale + shift).astype(np.float32)
    return x
