"""What a terminal shows: help at once, and a bar while a model learns."""

import os
import pty
import select
import subprocess
import sys
import termios

import pytest

HELP = """
import sys
from trainer.__main__ import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    heavy = {"torch", "matplotlib", "onnxruntime", "pyarrow", "sklearn"} & set(sys.modules)
    sys.exit(end.code or sorted(heavy) or 0)
"""


@pytest.mark.parametrize("command", ["", "fit", "export", "evaluate", "data"])
def test_help_comes_without_importing_torch(command, tmp_path):
    words = [word for word in (command, "--help") if word]
    done = subprocess.run(
        [sys.executable, "-c", HELP, *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: python -m trainer {command}")


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
