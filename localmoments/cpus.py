"""How many CPUs this process may use: its affinity, and the quota of its container.

A quota does not hide the machine's other CPUs: who starts a thread for each of them is stopped for
the rest of every period once the threads together have used the quota up. Version 2 of control
groups keeps it in `cpu.max`, version 1 in `cpu.cfs_quota_us` and `cpu.cfs_period_us`; each group
above may have one of its own.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def available_cpus(groups: Path = GROUPS, own: Path = OWN) -> int:
    """At least 1."""
    quotas = [quota(text) for text in _quota_texts(groups, _text(own))]
    return usable(_affinity(), [q for q in quotas if q is not None])


def usable(cpus: int, quotas: list[float]) -> int:
    """Whole CPUs within every limit. Half a CPU is left to the event loop."""
    return max(1, int(min([cpus, *quotas])))


def quota(text: str) -> float | None:
    """CPUs of "200000 100000"; nothing for "max 100000", "-1 100000" and what is not understood."""
    try:
        most, period = map(int, text.split())
    except ValueError:
        return None
    return most / period if most > 0 and period > 0 else None


def group_folders(own: str, groups: PurePosixPath) -> Iterator[tuple[PurePosixPath, int]]:
    """Every folder whose quota counts, and its version, from the lines of /proc/self/cgroup.

    0::/system.slice/a.service          version 2
    4:cpu,cpuacct:/docker/0123          version 1; in a container its folder is often the root
    """
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = controllers.split(",")
        if controllers and "cpu" not in names:
            continue
        root = groups / controllers if controllers else groups
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            yield root / folder, 1 if controllers else 2


def _quota_texts(groups: Path, own: str) -> Iterator[str]:
    folders = dict(group_folders(own, PurePosixPath(groups)))
    folders |= {PurePosixPath(groups): 2, PurePosixPath(groups / "cpu"): 1}
    for folder, version in folders.items():
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        yield " ".join(_text(Path(folder) / name) for name in names)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):  # another system, or another version of control groups
        return ""


def _affinity() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1
