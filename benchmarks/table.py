"""Measure time and accuracy of `fit FILE` on a table, with default options.

    python benchmarks/table.py

Draws a CSV of 5,000 rows × 8 columns from a Gaussian mixture, runs `python -m trainer fit` on it
without a recipe, and compares the local moments of the artefact with the analytic ones at 100 new
points. Writes benchmarks/results/table.json.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import describe_machine

from localmoments.model import Model
from trainer.data import GaussianMixture
from trainer.data.synthetic import make_mixture
from trainer.evaluate.known_law import moment_errors

RESULTS = Path(__file__).parent / "results"
ROWS, DIMS, POINTS = 5_000, 8, 100


def main() -> int:
    laws = {
        "built-in mixture": make_mixture(),
        **{f"random mixture {i}": make_random_mixture(i) for i in (1, 2, 3)},
    }
    figures = {name: measure(law) for name, law in laws.items()}
    for name, f in figures.items():
        print(
            f"{name:17} {f['seconds']:5.1f} s, local mean off by {100 * f['mean error']:.1f} %, "
            f"top tangent by {f['tangent angle']:.1f} degrees (medians)"
        )
    RESULTS.mkdir(exist_ok=True)
    body = {
        "rows": ROWS,
        "columns": DIMS,
        "points": POINTS,
        "laws": figures,
        "machine": describe_machine(),
    }
    (RESULTS / "table.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(law: GaussianMixture) -> dict[str, float]:
    """Fit a table of the law and return seconds, noise level and errors."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x = law.sample(ROWS, np.random.default_rng(0))
        header = ",".join(f"column{i}" for i in range(DIMS))
        np.savetxt(folder / "table.csv", x, delimiter=",", header=header, comments="")
        start = time.monotonic()
        command = [sys.executable, "-m", "trainer", "fit", "table.csv"]
        subprocess.run(command, cwd=folder, check=True, stderr=subprocess.DEVNULL)
        seconds = time.monotonic() - start
        model = Model.open(folder / "models" / "table" / "1")
        points = law.sample(POINTS, np.random.default_rng(1))
        return {"seconds": seconds, "sigma": model.manifest.sigma} | moment_errors(
            model, law, points
        )


def make_random_mixture(seed: int) -> GaussianMixture:
    """Make a mixture of three or four Gaussians with random means and orientations.

    The standard deviations along the axes of each are 1.5 to 0.2.
    """
    rng = np.random.default_rng(seed)
    k = 3 + seed % 2
    rotations = [np.linalg.qr(rng.standard_normal((DIMS, DIMS)))[0] for _ in range(k)]
    std = np.geomspace(1.5, 0.2, DIMS)
    covariances = np.stack([(Q * std**2) @ Q.T for Q in rotations])
    return GaussianMixture(np.full(k, 1 / k), 2 * rng.standard_normal((k, DIMS)), covariances)


if __name__ == "__main__":
    sys.exit(main())
