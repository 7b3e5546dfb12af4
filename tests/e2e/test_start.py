"""How the process starts, refuses to start, and ends."""

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
def test_a_signal_stops_the_service_cleanly(
    start: Any, models: Path, number: signal.Signals
) -> None:
    service = start(models)
    service.http.post("/reconstruct", json=GOOD, headers={"x-request-id": "last-one"})
    code, log = service.end(number)
    assert code == 0
    lines = [json.loads(line) for line in log.splitlines()]  # every line is JSON
    [line] = [line for line in lines if line.get("request_id") == "last-one"]
    assert (line["path"], line["status"], line["level"]) == ("/reconstruct", 200, "info")


@pytest.fixture
def starting(models: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a service without waiting for it."""
    begun: list[subprocess.Popen[str]] = []
    folder = tempfile.mkdtemp(prefix="lm-")  # short: sockets' names must be

    def begin() -> subprocess.Popen[str]:
        settings = {"MODELS": models, "PORT": 0, "THREADS": 1}
        begun.append(subprocess.Popen(
            [sys.executable, "-m", "service"], cwd=folder, stderr=subprocess.PIPE, text=True,
            env=os.environ | {f"LOCALMOMENTS_{k}": str(v) for k, v in settings.items()},
        ))  # fmt: skip
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()
    shutil.rmtree(folder)


def has_store(process: psutil.Process) -> bool:
    return bool(process.children())


def imports_onnxruntime(process: psutil.Process) -> bool:
    return "onnxruntime" in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", [has_store, imports_onnxruntime])
def test_a_signal_during_the_start_is_not_a_failure(
    starting: Any, wait_for: Any, moment: Any, number: signal.Signals
) -> None:
    process = starting()
    watched = psutil.Process(process.pid)

    def is_now() -> bool:
        with contextlib.suppress(psutil.Error, OSError):  # a child that has just ended
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
    (tmp_path / "models").mkdir()
    line = refused_start(tmp_path, LOCALMOMENTS_PORT=port)
    assert line == f"error: Cannot listen on 127.0.0.1:{port}: Address already in use."


def test_a_wrong_setting_is_one_sentence(refused_start: Any, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    assert "LOCALMOMENTS_PORT is 'x'" in refused_start(tmp_path, LOCALMOMENTS_PORT="x")
    (tmp_path / ".env").write_text("LOCALMOMENTS_LOG_LEVEL=loud\n")
    assert "LOCALMOMENTS_LOG_LEVEL is 'loud'" in refused_start(tmp_path)
    line = refused_start(
        tmp_path, LOCALMOMENTS_HOST="no.such.host.invalid", LOCALMOMENTS_LOG_LEVEL="info"
    )
    assert "Cannot listen on no.such.host.invalid:8000" in line
    line = refused_start(tmp_path, "--log-level", "loud", "--port", "0")
    assert line.startswith("error: --log-level is 'loud', but ")


def test_a_missing_models_folder_is_named(refused_start: Any, tmp_path: Path) -> None:
    line = refused_start(tmp_path, "--models", "nowhere", "--port", "0")
    assert line.startswith(f"error: The models folder {tmp_path / 'nowhere'} does not exist.")


def test_flags_win_over_the_environment_and_an_unknown_variable_is_reported(
    models: Path, tmp_path: Path
) -> None:
    settings = {"LOCALMOMENTS_MODELS": "nowhere", "LOCALMOMENTS_PROT": "1"}
    with tempfile.TemporaryDirectory(prefix="lm-") as store:
        flags = ["--models", str(models), "--port", "0", "--store-folder", store]
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "serve", *flags], cwd=tmp_path, text=True,
            env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout and process.stdout.readline().startswith("Serving gaussian@1")
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Did you mean LOCALMOMENTS_PORT?" in log


def test_help_has_examples_and_loads_no_web_stack() -> None:
    program = (
        "import sys, contextlib\nfrom service.__main__ import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "print(*sorted({'fastapi', 'onnxruntime', 'redis'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "--port" in done.stdout and "examples:" in done.stdout
    assert done.stderr.strip() == ""
