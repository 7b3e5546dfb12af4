"""Peak resident memory of a fit on an .npy that is larger than what memory may hold.

The fit runs in a process of its own, which reads its peak (VmHWM) from /proc when it is done: a
peak that is kept by the kernel misses nothing between two looks.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from trainer.config import Recipe, make_recipe
from trainer.fit import fit
from trainer.prepare import prepare
from trainer.run_folder import new_run

DIMS = 784
BLOCK = 16_384  # rows written in one go
STATUS = Path("/proc/self/status")


def peak_of_large_fit(gigabytes: float, tmp: Path | None) -> float:
    """GB (10⁹ bytes) resident at the peak of one epoch over a random file of this size."""
    if not STATUS.exists():
        raise SystemExit(f"--large-gb reads {STATUS}, which only Linux has.")
    with tempfile.TemporaryDirectory(dir=tmp, prefix="large-npy-") as folder:
        path = Path(folder) / "large.npy"
        write_random(path, int(gigabytes * 1e9))
        asked = [sys.executable, __file__, str(path)]
        done = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1]) / 1e9


def write_random(path: Path, size: int) -> None:
    """Float32 rows in [0, 1) up to `size` bytes, every one of them really on the disk."""
    free = shutil.disk_usage(path.parent).free
    if free < 1.1 * size:
        raise SystemExit(f"{path.parent} has {free / 1e9:.1f} GB free; {size / 1e9:.1f} GB and a "
                         "little more are needed (--tmp chooses another folder).")  # fmt: skip
    rng, rows = np.random.default_rng(0), size // (4 * DIMS)
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, DIMS)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, BLOCK):
            shape = (min(BLOCK, rows - start), DIMS)
            file.write(rng.random(shape, dtype=np.float32).data)


def recipe(path: Path) -> Recipe:
    """One epoch of a small model: every row of the file is read, and little is computed."""
    return make_recipe({
        "name": "large",
        "data": {"source": str(path)},
        "model": {"hidden": [128]},
        "training": {"epochs": 1, "batch": 1024, "threads": 1},
    })  # fmt: skip


def peak_of_this_process() -> int:
    """Bytes"""
    lines = STATUS.read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(kilobytes)


def main(path: Path) -> None:
    wanted = recipe(path)
    fit(wanted, prepare(wanted), new_run(path.parent / "runs", wanted))
    print(peak_of_this_process())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
