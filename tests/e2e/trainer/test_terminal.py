"""What a terminal shows: help at once, and a bar while a model learns."""

import os
import pty
import select
import subprocess
import sys
import termios

import pytest

LOADED = """
import sys
from localmoments.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code or 0
heavy = {"torch", "onnx", "onnxruntime", "sklearn", "arviz_stats", "matplotlib", "fastapi"}
print("loaded:", *sorted(heavy & set(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


def run_and_list_imports(folder, *words):
    """A command in a new interpreter: exit status, output, error lines, heavy packages loaded."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, cwd=folder
    )
    *lines, loaded = done.stderr.splitlines()
    return done.returncode, done.stdout, lines, loaded.removeprefix("loaded:").split()


@pytest.mark.parametrize("command", ["", "fit", "export", "evaluate", "data"])
def test_help_is_printed_without_importing_torch(command, tmp_path):
    words = [word for word in (command, "--help") if word]
    status, out, errors, loaded = run_and_list_imports(tmp_path, *words)
    assert (status, errors, loaded) == (0, [], [])
    assert out.startswith(f"usage: localmoments {command}") and "examples:" in out


def test_data_is_described_without_importing_torch(table, tmp_path):
    table(tmp_path / "table.csv")
    status, out, errors, loaded = run_and_list_imports(tmp_path, "data", "table.csv")
    assert (status, errors, loaded) == (0, [], [])
    assert "height" in out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["fit", "digits-dae", "--set", "training.epochs"], "key=value"),
        (["fit", "digits-dae", "--set", "training.epohcs=3"], "did you mean epochs"),
        (["fit", "table.csv", "--set", "data.columns=mean"], "a list of column names"),
        (["fit", "missing.csv"], "missing.csv"),
    ],
)
def test_a_mistake_is_reported_before_torch_is_imported(words, part, table, tmp_path):
    table(tmp_path / "table.csv")
    status, out, errors, loaded = run_and_list_imports(tmp_path, *words)
    assert (status, out, loaded) == (2, "", [])
    assert len(errors) == 1 and errors[0].startswith("error: ") and part in errors[0]


def everything(reader: int, process: subprocess.Popen[str]) -> str:
    """All that a pseudo-terminal shows until it says 100 %."""
    shown = b""
    while b"100%" not in shown:
        ready, _, _ = select.select([reader], [], [], 120)
        assert ready and process.poll() is None, shown
        shown += os.read(reader, 4096)
    return shown.decode()


def test_a_terminal_shows_a_bar_with_rate_loss_and_time_left(shell, table, tiny, tmp_path):
    table(tmp_path / "table.csv")
    reader, writer = pty.openpty()
    termios.tcsetwinsize(writer, (24, 100))
    longer = ["--set", "training.epochs=150"]
    process = shell.start(tmp_path, "fit", "table.csv", *tiny, *longer, stderr=writer)
    try:
        shown = everything(reader, process)
    finally:
        process.kill()
        process.wait()
        os.close(writer)
        os.close(reader)
    assert "\rfit table:" in shown and "rows/s" in shown and "loss " in shown
    assert "<" in shown, "elapsed<left"
