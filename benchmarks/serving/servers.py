"""Install peers into virtual environments, and start and stop servers.

Peers pin versions that exclude each other, so each has an environment of its own, created once.
A server runs as its own process group. Every server gets the same number of onnxruntime threads
and the same largest batch.
"""

import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).resolve().parent / "peers"
START_SECONDS = 90.0
STOP_SECONDS = 20.0

PACKAGES: dict[str, tuple[str, ...]] = {
    "asgi": ("uvicorn", "httptools", "uvloop", "orjson", "onnxruntime", "numpy"),
    "plain": ("fastapi", "uvicorn[standard]", "pydantic", "onnxruntime", "numpy"),
    "litserve": ("litserve", "onnxruntime", "numpy"),
    "bentoml": ("bentoml", "onnxruntime", "numpy"),
    "mlserver": ("mlserver", "onnxruntime", "numpy"),
    "ray": ("ray[serve]", "onnxruntime", "numpy"),
    "httpstan": ("httpstan",),
}
STAMP = ".installed"

# The deployment of docs/deployment.md: callers send an API key, a proxy adds the two others.
SECRET = "benchmark-" + "0" * 32
DEPLOYMENT_HEADERS = {
    "x_api_key": SECRET,
    "x_forwarded_for": "203.0.113.7",
    "x_forwarded_proto": "https",
}
KEYS = 10  # in the file; the one that is sent is the last


class PeerError(Exception):
    """A server cannot be installed or started, or returns wrong results."""


@dataclass(frozen=True)
class Venv:
    """A peer's virtual environment."""

    folder: Path

    def find_tool(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def read_versions(self, packages: tuple[str, ...]) -> dict[str, str]:
        names = [package.partition("[")[0] for package in packages]
        script = "import json, sys, importlib.metadata as m; "
        script += "print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
        versions: dict[str, str] = json.loads(
            _run_command([self.find_tool("python"), "-c", script, *names])
        )
        return versions


def install_peer(peer: str, venvs: Path) -> Venv:
    """Return the peer's environment and create it on first use; PeerError with pip's message."""
    venv, requirements = Venv((venvs / peer).absolute()), " ".join(PACKAGES[peer])
    stamp = venv.folder / STAMP
    if not stamp.exists() or stamp.read_text() != requirements:
        print(f"Installing {requirements} into {venv.folder} ...", flush=True)
        _run_command([sys.executable, "-m", "venv", "--clear", str(venv.folder)])
        pip = [venv.find_tool("python"), "-m", "pip", "-q", "--disable-pip-version-check"]
        _run_command([*pip, "install", *PACKAGES[peer]])
        stamp.write_text(requirements)
    return venv


def read_all_versions(venvs: Path) -> dict[str, dict[str, str]]:
    """Return the versions of the main packages of every peer that is installed."""
    return {
        peer: Venv(venvs / peer).read_versions(packages)
        for peer, packages in PACKAGES.items()
        if (venvs / peer / STAMP).exists()
    }


def _run_command(command: list[str]) -> str:
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.startswith("ERROR")]
        lines = lines or process.stderr.strip().splitlines()
        raise PeerError(f"{' '.join(command[-4:])}: {' '.join(lines[-3:])[-500:]}")
    return process.stdout


@dataclass(frozen=True)
class Server:
    """A server that accepts connections."""

    name: str
    port: int
    process: psutil.Process
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def list_processes(self) -> list[psutil.Process]:
        """The server's process and all of its descendants."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def measure_memory(self) -> int:
        """Resident bytes of all processes."""
        total = 0
        for process in self.list_processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def measure_cpu(self) -> float:
        """CPU seconds of all processes so far."""
        total = 0.0
        for process in self.list_processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total


@contextlib.contextmanager
def start_server(
    name: str, command: list[str], environment: Mapping[str, str], port: int, cwd: Path = PEERS
) -> Iterator[Server]:
    """Run a server for the duration of the block; PeerError if it does not listen in time."""
    with tempfile.TemporaryDirectory(prefix="lm-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **environment, "TMPDIR": folder},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        server = Server(name, port, psutil.Process(process.pid), log)
        try:
            _wait_until_listening(process, server)
            yield server
        finally:
            _stop(process, server)


@contextlib.contextmanager
def start_service(
    models: Path,
    threads: int = 1,
    *,
    with_keys: bool = False,
    checkout: Path = ROOT,
    **settings: str,
) -> Iterator[Server]:
    """Run this service for the duration of the block, once `/readyz` answers 200.

    Args:
        models: folder with models.
        threads: threads of onnxruntime.
        with_keys: require an API key; DEPLOYMENT_HEADERS has one.
        checkout: repository whose code is run, to compare with another version.
        settings: more settings by name, in lower case and without their prefix.
    """
    port = find_free_port()
    with tempfile.TemporaryDirectory(prefix="lm-store-") as folder:
        defaults = {
            "port": str(port), "models": str(models.absolute()), "threads": str(threads),
            "log_level": "warning", "reload_seconds": "0", "store_folder": f"{folder}/store",
            "drain_seconds": "0", "grace_seconds": "3",
        }  # fmt: skip
        if with_keys:
            defaults["keys_file"] = str(_write_keys(Path(folder)))
        environment = {
            f"LOCALMOMENTS_{name.upper()}": value for name, value in (defaults | settings).items()
        }
        command = [sys.executable, "-m", "service"]
        environment["PYTHONPATH"] = str(checkout)
        with start_server("localmoments", command, environment, port, Path(folder)) as server:
            _wait_until_ready(server)
            yield server


def _write_keys(folder: Path) -> Path:
    """Write a file of keys with rate limits that are on, but never reached."""
    secrets = [*(f"unused-{i}" for i in range(KEYS - 1)), SECRET]
    path = folder / "keys.toml"
    path.write_text("\n".join(
        f'[[key]]\nname = "caller-{i}"\nsha256 = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
        'scopes = ["read", "sample"]\nrequests_per_minute = 100000000\n'
        "row_steps_per_minute = 1000000000000\n"
        for i, secret in enumerate(secrets)
    ))  # fmt: skip
    return path


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_listening(process: subprocess.Popen[bytes], server: Server) -> None:
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(server.address, 1):
            return
        time.sleep(0.05)
    lines = server.log.read_text(errors="replace").strip().splitlines()[-4:]
    failure = (
        "did not listen in time" if process.poll() is None else f"exited ({process.returncode})"
    )
    raise PeerError(f"{server.name} {failure}: {' '.join(lines)[-600:]}")


def _wait_until_ready(server: Server) -> None:
    """The service listens before its models are loaded."""
    end, status = time.monotonic() + START_SECONDS, 0
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(*server.address, timeout=START_SECONDS)
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(connection),
        ):
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
            if status == 200:
                return
        time.sleep(0.05)
    raise PeerError(f"{server.name} is not ready: /readyz returned {status}.")


def _stop(process: subprocess.Popen[bytes], server: Server) -> None:
    """Send SIGTERM, and SIGKILL to the server's processes that are left after a while."""
    processes = server.list_processes()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    _, alive = psutil.wait_procs(processes, timeout=3)
    for each in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(alive, timeout=3)
    process.wait()
