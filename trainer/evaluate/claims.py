"""The paper's claims, measured on a model; docs/theory.md says which of them hold.

| figures     | question                                                  | module         |
|-------------|-----------------------------------------------------------|----------------|
| calibration | is σ²J the covariance of what is left to know of x?       | calibration.py |
| neighbours  | are r and σ²J the moments of the training rows nearby?    | windows.py     |
| consistency | has the chain N(μ(x), Σ(x)) the moments that it follows?  | consistency.py |

All points and covariances are in the model's units.
"""

from typing import Any

import numpy as np

from localmoments.arrays import Floats
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.model import Model
from localmoments.noise import normals
from trainer.evaluate.calibration import calibration, local_at
from trainer.evaluate.consistency import consistency
from trainer.evaluate.rows import Rows
from trainer.evaluate.watch import Watch
from trainer.evaluate.windows import neighbour_figures

ROWS, WIDE_ROWS = 4_096, 512  # that are corrupted; the second where d is large
POINTS = 96  # whose tangents are found and whose neighbours are looked at, where d is large


def claims_figures(model: Model, rows: Rows, watch: Watch, seed: int = 0) -> dict[str, Any]:
    """Calibration, neighbours and consistency of a model, as plain numbers for its manifest.

    Args:
        rows: test rows are corrupted and restored; training rows are the neighbours.
        watch: where progress is shown.

    Example:
        >>> figures = claims_figures(model, rows, Watch(None))
        >>> figures["calibration"]["0.8"]["trace ratio"]
        0.987
    """
    test, train = (_in_model_units(model, rows, part) for part in (rows.test.x, rows.train.x))
    rng = np.random.default_rng(seed)
    m = model.manifest
    wide = m.input_dims > FULL_JACOBIAN_DIMS
    some = test[rng.permutation(len(test))[: WIDE_ROWS if wide else ROWS]]
    figures: dict[str, Any] = {"covariance scale": m.covariance_scale, "calibration": {}}
    with watch.part("calibration and neighbours", len(levels(model))) as tick:
        for sigma in levels(model):
            noisy = (some + sigma * normals(seed, 0, some.shape)).astype(np.float32)
            local = local_at(model, noisy, POINTS if sigma == m.sigma else POINTS // 3, sigma)
            figures["calibration"][f"{sigma:.4g}"] = calibration(local, some, sigma)
            if sigma == m.sigma:
                figures["neighbours"] = neighbour_figures(local, train, sigma, POINTS)
            tick(1)
    if "moment" in m.kernels:
        with watch.part("consistency"):
            figures["consistency"] = consistency(model, train, rng)
    return figures


def levels(model: Model) -> list[float]:
    """The chain's noise level and, where the model is told its level, that for clean rows and three
    of the range."""
    m = model.manifest
    if not m.conditioned or m.noise_levels is None:
        return [m.sigma]
    low, high = m.noise_levels
    return sorted({low, float(np.sqrt(low * high)), m.sigma, m.moments_sigma, high})


def _in_model_units(model: Model, rows: Rows, x: Floats) -> Floats:
    return model.manifest.normaliser.to_model(rows.units.to_user(x))
