"""Programs that some tests need and that pip does not install.

A test asks for one with the `needs` fixture: `needs("chromium")` returns its path. If it is
missing, the test is skipped, and the last line of the run says how many tests were skipped, which
program is missing and what installs it. With LOCALMOMENTS_TEST_ALL=1 the test fails instead; a
comma-separated list of programs, such as "chromium,curl", does that for these alone.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

FAIL_VARIABLE = "LOCALMOMENTS_TEST_ALL"
KSERVE_PYTHON = Path(__file__).resolve().parents[1] / ".venv-kserve/bin/python"


def find_first(*names: str) -> str | None:
    """Return the path of the first of these programs that is installed."""
    return next(filter(None, map(shutil.which, names)), None)


def find_kserve() -> str | None:
    """Return a Python interpreter that has the kserve package, which conflicts with ours."""
    found = os.environ.get("KSERVE_PYTHON") or (KSERVE_PYTHON.exists() and str(KSERVE_PYTHON))
    return found or None


@dataclass(frozen=True)
class Program:
    """A program that tests may need."""

    title: str
    install: str  # the command that installs it
    find: Callable[[], str | None]

    @property
    def reason(self) -> str:
        return f"{self.title} is missing ({self.install})"


PROGRAMS = {
    "chromium": Program(
        "Chromium",
        "apt-get install chromium",
        lambda: find_first("chromium", "chromium-browser", "google-chrome"),
    ),
    "redis-server": Program(
        "redis-server", "apt-get install redis-server", lambda: find_first("redis-server")
    ),
    "kserve": Program("KServe's client", "make .venv-kserve/.made", find_kserve),
    "openssl": Program("openssl", "apt-get install openssl", lambda: find_first("openssl")),
    "curl": Program("curl", "apt-get install curl", lambda: find_first("curl")),
}


@pytest.fixture(scope="session")
def needs() -> Callable[[str], str]:
    """Return the path of a program of PROGRAMS; skip (or fail) the test if it is missing."""

    def find(name: str) -> str:
        program = PROGRAMS[name]
        path = program.find()
        if path is not None:
            return path
        required = os.environ.get(FAIL_VARIABLE, "")
        if required == "1" or name in required.split(","):
            pytest.fail(f"{program.reason}; {FAIL_VARIABLE} requires it", pytrace=False)
        pytest.skip(program.reason)

    return find


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write one line on the tests that were skipped because a program is missing.

    With pytest-xdist this runs in the controller, which has the reports of all workers.
    """
    reports = terminalreporter.stats.get("skipped", [])
    parts = []
    for program in PROGRAMS.values():
        skipped = [r for r in reports if program.reason in str(r.longrepr)]
        if skipped:
            files = sorted({r.nodeid.partition("::")[0] for r in skipped})
            tests = "1 test" if len(skipped) == 1 else f"{len(skipped)} tests"
            parts.append(f"Skipped {tests} in {os.path.commonpath(files)}: {program.reason}.")
    if parts:
        terminalreporter.write_line(" ".join(parts), yellow=True, bold=True)
