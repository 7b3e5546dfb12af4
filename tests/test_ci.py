"""`.ci/run` installs what it can, says what it cannot, and requires the rest of `make test`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci/run"
TOOLS = ("bash", "dirname", "id", "rm", "env")
PROGRAMS = ("chromium", "redis-server", "openssl", "curl")
MAKE = """#!/bin/sh
case "$*" in
  test) echo "make test with LOCALMOMENTS_TEST_ALL=$LOCALMOMENTS_TEST_ALL" ;;
  *kserve*) exit "$KSERVE_STATUS" ;;
esac
"""
APT = """#!/bin/sh
echo "$*" >> apt.log
exit "$APT_STATUS"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with .ci/run and a PATH of stand-ins for make and apt-get."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci/run")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    for name, text in {"make": MAKE, "apt-get": APT}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def install(checkout: Path) -> None:
    for program in PROGRAMS:
        (checkout / "bin" / program).touch(mode=0o755)


def run_ci(checkout: Path, kserve: int = 0, apt: int = 0) -> subprocess.CompletedProcess[str]:
    statuses = {"KSERVE_STATUS": str(kserve), "APT_STATUS": str(apt)}
    return subprocess.run(
        [checkout / ".ci/run"], env={"PATH": str(checkout / "bin"), **statuses},
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip


def test_every_program_is_required_of_the_tests(checkout: Path) -> None:
    install(checkout)
    run = run_ci(checkout)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == "make test with LOCALMOMENTS_TEST_ALL=1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs with apt-get")
@pytest.mark.parametrize("status", [0, 100], ids=["online", "offline"])
def test_root_installs_missing_programs_with_apt(checkout: Path, status: int) -> None:
    run = run_ci(checkout, apt=status)
    assert run.returncode == 0 and run.stdout.endswith("LOCALMOMENTS_TEST_ALL=1\n")
    log = (checkout / "apt.log").read_text()
    assert ("chromium redis-server openssl curl" in log) == (status == 0)
    assert ("apt-get could not install chromium" in run.stderr) == (status != 0)


def test_without_kserve_the_other_programs_are_required(checkout: Path) -> None:
    install(checkout)
    run = run_ci(checkout, kserve=2)
    assert run.returncode == 0 and "pip could not install KServe's client" in run.stderr
    assert run.stdout.endswith("LOCALMOMENTS_TEST_ALL=chromium,redis-server,openssl,curl\n")
