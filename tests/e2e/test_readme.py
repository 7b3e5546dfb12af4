"""What the README shows works as it is pasted, against a real server and the shipped models."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """host:port of `python -m service` on the models that lie in the repository."""
    environment = os.environ | {"LOCALMOMENTS_PORT": "0", "LOCALMOMENTS_LOG_LEVEL": "error"}
    command = [sys.executable, "-m", "service"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        said = server.stdout.readline().decode()
        yield said.rpartition("http://")[2].strip()
        server.terminate()
        assert server.wait(20) == 0


def curls() -> list[str]:
    block = next(b for b in re.findall(r"```sh\n(.*?)```", README, re.S) if "curl" in b)
    return [command for command in block.split("\n\n") if command.strip()]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_three_curls_answer_what_the_readme_says(address: str) -> None:
    answers = [run(command, address) for command in curls()]
    assert len(answers) == 3
    assert len(answers[0]["reconstruction"]) == 2
    shown = json.loads(re.findall(r"```json\n(.*?)```", README, re.S)[0])
    assert rounded(answers[1]) == rounded(shown)
    assert {m["name"] for m in answers[2]["models"]} >= {"digits-dae", "spiral-dae"}


def run(command: str, address: str) -> dict[str, object]:
    pasted = command.replace("localhost:8000", address)
    done = subprocess.run(["sh", "-c", pasted], capture_output=True, check=True, timeout=30)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def rounded(value: object) -> object:
    """Numbers to three significant digits, as the README prints them."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
