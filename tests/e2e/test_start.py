"""How the process starts, does not start, and ends."""

import json
import signal
from pathlib import Path
from typing import Any

import httpx
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
