"""Measure the peak resident memory of a fit on an .npy that is larger than the memory limit.

The fit runs in its own process, which reads its peak (VmHWM) from /proc at the end. The kernel
keeps this peak, so no moment is missed.
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
BLOCK = 16_384  # rows per write
STATUS = Path("/proc/self/status")


def measure_large_fit(gigabytes: float, tmp: Path | None) -> float:
    """Return the peak in GB (10⁹ bytes) of one epoch over a random file of this size."""
    if not STATUS.exists():
        raise SystemExit(f"--large-gb needs {STATUS}, which exists on Linux only.")
    with tempfile.TemporaryDirectory(dir=tmp, prefix="large-npy-") as folder:
        path = Path(folder) / "large.npy"
        write_random(path, int(gigabytes * 1e9))
        command = [sys.executable, __file__, str(path)]
        process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(process.stdout.split()[-1]) / 1e9


def write_random(path: Path, size: int) -> None:
    """Write float32 rows in [0, 1) up to `size` bytes; random, so that the file is not sparse."""
    free = shutil.disk_usage(path.parent).free
    if free < 1.1 * size:
        raise SystemExit(
            f"{path.parent} has {free / 1e9:.1f} GB free, but {1.1 * size / 1e9:.1f} GB are "
            "needed. Choose another folder with --tmp."
        )
    rng, rows = np.random.default_rng(0), size // (4 * DIMS)
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, DIMS)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, BLOCK):
            shape = (min(BLOCK, rows - start), DIMS)
            file.write(rng.random(shape, dtype=np.float32).data)


def make_large_recipe(path: Path) -> Recipe:
    """Return a recipe that reads every row once and computes little."""
    return make_recipe({
        "name": "large",
        "data": {"source": str(path)},
        "model": {"hidden": [128]},
        "training": {"epochs": 1, "batch": 1024, "threads": 1},
    })  # fmt: skip


def read_peak() -> int:
    """Return the peak resident memory of this process in bytes."""
    lines = STATUS.read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(kilobytes)


def main(path: Path) -> None:
    recipe = make_large_recipe(path)
    fit(recipe, prepare(recipe), new_run(path.parent / "runs", recipe))
    print(read_peak())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
