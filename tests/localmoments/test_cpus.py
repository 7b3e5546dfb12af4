"""CPUs that may be used, from the files that Linux gives a container."""

import os
from pathlib import Path, PurePosixPath

import pytest

from localmoments.cpus import available_cpus, count_usable, group_folders, parse_quota


@pytest.fixture(autouse=True)
def _eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("200000 100000", 2.0), ("150000 100000", 1.5), ("50000 100000", 0.5),
        ("max 100000", None), ("-1 100000", None), ("", None), ("0 0", None), ("12", None),
    ],
)  # fmt: skip
def test_a_quota_is_read_as_cpus(text: str, expected: float | None) -> None:
    assert parse_quota(text) == expected


@pytest.mark.parametrize(
    ("cpus", "quotas", "expected"),
    [(8, [], 8), (8, [2.0], 2), (8, [2.9], 2), (8, [0.5], 1), (2, [99.0], 2), (8, [4.0, 3.0], 3)],
)
def test_the_least_limit_holds_in_whole_cpus(cpus: int, quotas: list[float], expected: int) -> None:
    assert count_usable(cpus, quotas) == expected


def test_every_group_above_counts_in_both_versions() -> None:
    root = PurePosixPath("/g")
    two = dict(group_folders("0::/a/b\n", root))
    assert two == {root / "a/b": 2, root / "a": 2, root: 2}
    one = dict(group_folders("5:memory:/x\n4:cpu,cpuacct:/docker/1\n3:cpuset:/y\n", root))
    here = root / "cpu,cpuacct"
    assert one == {here / "docker/1": 1, here / "docker": 1, here: 1}
    assert dict(group_folders("", root)) == {}


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({}, "", 8),
        ({"cpu.max": "300000 100000"}, "0::/\n", 3),
        ({"cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, "0::/a/b\n", 2),
        ({"a/cpu.max": "400000 100000", "a/b/cpu.max": "50000 100000"}, "0::/a/b\n", 1),
        ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"},
         "2:cpu,cpuacct:/docker/1\n", 2),
        ({"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
         "2:cpu,cpuacct:/docker/1\n", 8),
        ({"cpu.max": "9900000 100000"}, "0::/\n", 8),
    ],
)  # fmt: skip
def test_threads_follow_the_containers_quota(
    tmp_path: Path, files: dict[str, str], own: str, expected: int
) -> None:
    for name, text in files.items():
        (tmp_path / "g" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "g" / name).write_text(text + "\n")
    (tmp_path / "own").write_text(own)
    assert available_cpus(tmp_path / "g", tmp_path / "own") == expected


def test_a_system_without_any_of_it_has_its_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    assert available_cpus(tmp_path / "none", tmp_path / "none") == (os.cpu_count() or 1)
