"""How the process starts, does not start, and ends."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

GOOD = {"x": [[0.0] * 4]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(start: Any, models: Path, number: signal.Signals) -> None:
    service = start(models)
    service.http.post("/reconstruct", json=GOOD, headers={"x-request-id": "last-one"})
    code, log = service.end(number)
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]  # every line is JSON
    [line] = [line for line in lines if line.get("request_id") == "last-one"]
    assert (line["path"], line["status"], line["level"]) == ("/reconstruct", 200, "info")


@pytest.fixture
def starting(models: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A service that nobody has waited for yet."""
    begun: list[subprocess.Popen[str]] = []
    folder = tempfile.mkdtemp(prefix="lm-")  # short: sockets' names must be

    def begin(workers: int) -> subprocess.Popen[str]:
        own = {"MODELS": models, "PORT": 0, "THREADS": 1, "WORKERS": workers}
        begun.append(subprocess.Popen(
            [sys.executable, "-m", "service"], cwd=folder, stderr=subprocess.PIPE, text=True,
            env=os.environ | {f"LOCALMOMENTS_{k}": str(v) for k, v in own.items()},
        ))  # fmt: skip
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()
    shutil.rmtree(folder)


def has_begun(process: psutil.Process) -> bool:
    return bool(process.children())  # the store


def has_a_worker(process: psutil.Process) -> bool:
    return any("worker" in child.cmdline() for child in process.children())


def imports_onnxruntime(process: psutil.Process) -> bool:
    every = [process, *process.children(recursive=True)]
    return any("onnxruntime" in Path(f"/proc/{one.pid}/maps").read_text() for one in every)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("workers", "moment"),
    [(1, has_begun), (1, imports_onnxruntime), (2, has_a_worker), (2, imports_onnxruntime)],
)
def test_a_signal_during_the_start_is_no_failure(
    starting: Any, wait_for: Any, workers: int, moment: Any, number: signal.Signals
) -> None:
    process = starting(workers)
    watched = psutil.Process(process.pid)

    def is_now() -> bool:
        with contextlib.suppress(psutil.Error, OSError):  # a child that has just gone
            return bool(moment(watched))
        return False

    wait_for(is_now, every=0.002)
    process.send_signal(number)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0, log
    assert "Traceback" not in log


def test_a_port_in_use_is_one_sentence(
    http: httpx.Client, refused_start: Any, tmp_path: Path
) -> None:
    port = str(http.base_url.port)
    line = refused_start(tmp_path, LOCALMOMENTS_PORT=port)
    assert line == f"error: 127.0.0.1:{port} cannot be listened on: Address already in use."


def test_a_wrong_setting_is_one_sentence(refused_start: Any, tmp_path: Path) -> None:
    assert "LOCALMOMENTS_PORT is 'x'" in refused_start(tmp_path, LOCALMOMENTS_PORT="x")
    (tmp_path / ".env").write_text("LOCALMOMENTS_LOG_LEVEL=loud\n")
    assert "LOCALMOMENTS_LOG_LEVEL is 'loud'" in refused_start(tmp_path)
    line = refused_start(
        tmp_path, LOCALMOMENTS_HOST="no.such.host.invalid", LOCALMOMENTS_LOG_LEVEL="info"
    )
    assert "no.such.host.invalid:8000 cannot be listened on" in line
