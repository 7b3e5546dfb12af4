"""The number of CPUs that this process may use: its affinity and the quota of its container.

A container with a quota still sees all CPUs of the machine. A process that starts one thread for
each of them uses up the quota early in every period and is then paused for the rest of it. Control
groups of version 2 store the quota in `cpu.max`, those of version 1 in `cpu.cfs_quota_us` and
`cpu.cfs_period_us`. Every parent group can have a quota too.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GROUPS, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def available_cpus(groups: Path = GROUPS, own: Path = OWN) -> int:
    """Return the number of CPUs that this process may use, at least 1.

    Args:
        groups: where the control groups are mounted.
        own: the file that names the groups of this process.
    """
    quotas = [parse_quota(text) for text in _quota_texts(groups, _text(own))]
    return count_usable(_affinity(), [q for q in quotas if q is not None])


def count_usable(cpus: int, quotas: list[float]) -> int:
    """Return the whole CPUs within all limits, at least 1. A fraction of a CPU is not counted."""
    return max(1, int(min([cpus, *quotas])))


def parse_quota(text: str) -> float | None:
    """Parse a quota: "200000 100000" is 2 CPUs. None for "max 100000", "-1 100000" and the like."""
    try:
        most, period = map(int, text.split())
    except ValueError:
        return None
    return most / period if most > 0 and period > 0 else None


def group_folders(own: str, groups: PurePosixPath) -> Iterator[tuple[PurePosixPath, int]]:
    """Yield every folder with a quota of this process, and its version, from /proc/self/cgroup.

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
