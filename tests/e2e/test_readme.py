"""The examples of the README work as written, on the shipped models and a real server."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def find_blocks(language: str) -> list[str]:
    """Return the fenced blocks of the README in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a service with the models of the repository."""
    environment = os.environ | {
        "LOCALMOMENTS_PORT": "0",
        "LOCALMOMENTS_LOG_LEVEL": "error",
        "LOCALMOMENTS_STORE_FOLDER": str(tmp_path_factory.mktemp("store")),
    }
    command = [sys.executable, "-m", "service"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        announcement = server.stdout.readline().decode()
        yield announcement.rpartition("http://")[2].strip()
        server.terminate()
        assert server.wait(20) == 0


def test_the_curl_calls_return_what_the_readme_shows(
    address: str, needs: Callable[[str], str]
) -> None:
    needs("curl")
    block = next(block for block in find_blocks("sh") if "curl" in block)
    commands = [command for command in block.split("\n\n") if command.strip()]
    sample, stream, moments = (run_command(command, address) for command in commands)
    assert json.loads(sample)["shape"] == [2, 2, 2]
    assert json.loads(run_command(commands[0], address))["samples"] == json.loads(sample)["samples"]
    events = stream.split("\n\n")
    assert len(events) == 1 + 10 + 3 and events[-2] == "data: [DONE]"
    assert json.loads(events[0].removeprefix("data: "))["model"] == "mnist-dae@1"
    shown_sample, shown_moments = map(json.loads, find_blocks("json"))
    returned = {k: v for k, v in json.loads(sample).items() if k in shown_sample}
    assert round_numbers(returned | {"chain": ""}) == round_numbers(shown_sample | {"chain": ""})
    assert round_numbers(json.loads(moments)) == round_numbers(shown_moments)


def test_the_stream_has_the_fields_that_the_readme_shows(
    address: str, needs: Callable[[str], str]
) -> None:
    needs("curl")
    shown = re.search(r"^data: (\{\"chain\".*\})$", README, re.M)
    assert shown
    stream = run_command(
        "curl -sN -X POST localhost:8000/sample -H 'content-type: application/json' "
        """-d '{"stream": true}'""",
        address,
    )
    header = json.loads(stream.partition("\n\n")[0].removeprefix("data: "))
    fields = re.findall(r"\"(\w+)\":", shown[1])
    assert len(fields) > 3 and set(fields) <= set(header)
    assert header["step"] == 100 and '"step":100' in shown[1].replace(" ", "")


def test_the_python_example_returns_arrays_of_the_shapes_shown() -> None:
    (example,) = find_blocks("python")
    program = example + "\nprint(x.shape, error.shape, moments.eigenvalues.shape)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert run.stdout == "(4, 64) (4,) (2,)\n", run.stderr


def run_command(command: str, address: str) -> str:
    pasted = command.replace("localhost:8000", address)
    run = subprocess.run(["sh", "-c", pasted], capture_output=True, check=True, timeout=60)
    return run.stdout.decode()


def round_numbers(value: object) -> object:
    """Round numbers to three significant digits, as the README shows them."""
    if isinstance(value, dict):
        return {k: round_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [round_numbers(v) for v in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
