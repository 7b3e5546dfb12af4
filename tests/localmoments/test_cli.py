"""The `localmoments` command: help, version, dispatch, and a message for a missing extra."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from localmoments.cli import COMMANDS, load, main

# Blocks a package in a new interpreter, as if it were not installed.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder
class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from localmoments.cli import main
sys.exit(main(sys.argv[2:]))
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=120
    )


def test_help_has_one_line_for_each_command_and_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    for name, command in COMMANDS.items():
        assert any(line.split() == [name, *command.summary.split()] for line in lines)
    assert "examples:" in lines


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == version("localmoments")


@pytest.mark.parametrize("words", [[], ["serv"], ["--port", "1"]])
def test_a_wrong_command_prints_the_usage_and_exits_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: localmoments")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_function(name: str) -> None:
    assert callable(load(name))


@pytest.mark.parametrize(
    ("package", "words", "sentence"),
    [
        (
            "torch",
            ["fit", "digits", "--set", "training.epochs=1"],
            "`localmoments fit` needs the training extra: pip install 'localmoments[train,cpu]'",
        ),
        (
            "uvicorn",
            ["serve"],
            "`localmoments serve` needs the serving extra: pip install 'localmoments[serve,cpu]'",
        ),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    package: str, words: list[str], sentence: str
) -> None:
    done = run("-c", WITHOUT, package, *words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: {sentence}")
    assert "Traceback" not in done.stderr


def test_the_command_imports_no_package_that_an_extra_installs() -> None:
    done = run(
        "-c",
        "import sys; from localmoments import cli; cli.make_parser(); "
        "print({'torch', 'onnxruntime', 'fastapi', 'numpy', 'pydantic'} & set(sys.modules))",
    )
    assert done.stdout.strip() == "set()", done.stderr
