"""Starts and stops a server as a process group of its own, and waits until it answers rightly.

Every server has the same number of threads for onnxruntime, in one process for its model or shared
by two, and the same largest batch. What it leaves behind when asked to end is ended by process id.
"""

import contextlib
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

from serving.venvs import PeerError

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).resolve().parent / "peers"
START_SECONDS = 90.0
STOP_SECONDS = 20.0


@dataclass(frozen=True)
class Running:
    """A server that listens."""

    name: str
    port: int
    process: psutil.Process
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def family(self) -> list[psutil.Process]:
        """The process and all that it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.process, *self.process.children(recursive=True)]
        return []

    def rss(self) -> int:
        """Bytes resident, of all of its processes."""
        total = 0
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def cpu_seconds(self) -> float:
        total = 0.0
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total


@contextlib.contextmanager
def started(
    name: str, command: list[str], environment: Mapping[str, str], port: int, cwd: Path = PEERS
) -> Iterator[Running]:
    """The server while the block lasts; PeerError if it does not come up."""
    with tempfile.TemporaryDirectory(prefix="lm-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **environment, "TMPDIR": folder},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        running = Running(name, port, psutil.Process(process.pid), log)
        try:
            _await(process, running)
            yield running
        finally:
            _stop(process, running)


def service(models: Path, threads: int, folder: Path, port: int, **more: str) -> dict[str, str]:
    """The environment of our service."""
    settings = {
        "port": str(port), "models": str(models.absolute()), "threads": str(threads),
        "log_level": "warning", "reload_seconds": "0", "store_folder": str(folder / "store"),
        "drain_seconds": "0", "grace_seconds": "3", **more,
    }  # fmt: skip
    named = {f"LOCALMOMENTS_{key.upper()}": value for key, value in settings.items()}
    return {**named, "PYTHONPATH": str(ROOT)}


@contextlib.contextmanager
def our_service(models: Path, threads: int = 1, **more: str) -> Iterator[Running]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="lm-store-") as folder:
        environment = service(models, threads, Path(folder), port, **more)
        command = [sys.executable, "-m", "service"]
        with started("localmoments", command, environment, port, Path(folder)) as running:
            yield running


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(process: subprocess.Popen[bytes], running: Running) -> None:
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(running.address, 1):
            return
        time.sleep(0.05)
    words = running.log.read_text(errors="replace").strip().splitlines()[-4:]
    how = "did not listen in time" if process.poll() is None else f"ended ({process.returncode})"
    raise PeerError(f"{running.name} {how}: {' '.join(words)[-600:]}")


def _stop(process: subprocess.Popen[bytes], running: Running) -> None:
    family = running.family()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    _, left = psutil.wait_procs(family, timeout=3)
    for each in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(left, timeout=3)
    process.wait()
