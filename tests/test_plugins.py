"""Tests that need a missing program are reported by name, and fail where all tests must run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).with_name("plugins.py")
TESTS = """
def test_in_a_browser(needs): needs("chromium")
def test_in_another_browser(needs): needs("chromium")
def test_with_redis(needs): needs("redis-server")
def test_without_programs(): pass
"""
SUMMARY = (
    "Skipped 2 tests in test_a.py: Chromium is missing (apt-get install chromium). "
    "Skipped 1 test in test_a.py: redis-server is missing (apt-get install redis-server)."
)


def run_tests(folder: Path, *arguments: str, **environment: str) -> list[str]:
    """Run TESTS with no program on PATH; return the lines that pytest writes."""
    (folder / "conftest.py").write_text(PLUGINS.read_text())
    (folder / "test_a.py").write_text(TESTS)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LOCALMOMENTS_", "PYTEST_"))}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder, env={**clean, "PATH": str(folder), **environment},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    return run.stdout.splitlines()


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_one_line_names_what_is_missing_and_what_installs_it(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    lines = run_tests(tmp_path, *arguments)
    assert lines.count(SUMMARY) == 1
    assert lines[-1].startswith("1 passed, 3 skipped")


def test_with_the_variable_tests_fail_instead_of_being_skipped(tmp_path: Path) -> None:
    lines = run_tests(tmp_path, LOCALMOMENTS_TEST_ALL="1")
    assert lines[-1].startswith("3 failed, 1 passed")
    assert any("Chromium is missing (apt-get install chromium)" in line for line in lines)


def test_the_variable_can_name_the_programs_that_must_be_there(tmp_path: Path) -> None:
    lines = run_tests(tmp_path, LOCALMOMENTS_TEST_ALL="redis-server,curl")
    assert lines[-1].startswith("1 failed, 1 passed, 2 skipped")


def test_nothing_is_written_when_no_test_was_skipped(tmp_path: Path) -> None:
    for name in ("chromium", "redis-server"):
        (tmp_path / name).touch(mode=0o755)
    lines = run_tests(tmp_path)
    assert lines[-1].startswith("4 passed") and not any("Skipped" in line for line in lines)
