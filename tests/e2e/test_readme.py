"""What the README shows works as it is pasted, against a real server and the shipped models."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of `python -m service` on the models that lie in the repository."""
    environment = os.environ | {
        "LOCALMOMENTS_PORT": "0",
        "LOCALMOMENTS_LOG_LEVEL": "error",
        "LOCALMOMENTS_STORE_FOLDER": str(tmp_path_factory.mktemp("store")),
    }
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


def test_the_three_curls_answer_what_the_readme_says(address: str) -> None:
    sampled, streamed, moments = (run(command, address) for command in curls())
    assert json.loads(sampled)["shape"] == [2, 2, 2]
    assert json.loads(run(curls()[0], address))["samples"] == json.loads(sampled)["samples"]
    events = streamed.split("\n\n")
    assert len(events) == 1 + 10 + 3 and events[-2] == "data: [DONE]"
    assert json.loads(events[0].removeprefix("data: "))["model"] == "mnist-dae@1"
    first, third = map(json.loads, re.findall(r"```json\n(.*?)```", README, re.S))
    drawn = {k: v for k, v in json.loads(sampled).items() if k in first}
    assert rounded(drawn | {"chain": ""}) == rounded(first | {"chain": ""})
    assert rounded(json.loads(moments)) == rounded(third)


def run(command: str, address: str) -> str:
    pasted = command.replace("localhost:8000", address)
    done = subprocess.run(["sh", "-c", pasted], capture_output=True, check=True, timeout=30)
    return done.stdout.decode()


def rounded(value: object) -> object:
    """Numbers to three significant digits, as the README prints them."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
