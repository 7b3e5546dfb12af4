"""Settings for data that comes without a recipe: what usually works, chosen by looking at it.

Tables get a small residual network, images a wide one. Both are trained over a range of noise
levels and told the level, so one model serves near and far neighbourhoods. How long depends on
the size: enough steps to learn a small table well within minutes, and at least one pass over
large data.
"""

import math
import re
from pathlib import Path
from typing import Any

from trainer.data import Dataset

NOISE_RANGE = (0.1, 1.0)  # in standard deviations, or parts of the grey range
SERVED = 0.5  # far enough for chains to cross between clusters, near enough for sharp tangents
STEPS = 12_000


def default_recipe(name: str, dataset: Dataset) -> dict[str, Any]:
    """A recipe's tables for this data, without the [data] table."""
    small = dataset.dims <= 64
    batch = 128 if dataset.rows >= 1_000 else 32
    steps_per_epoch = math.ceil(0.9 * dataset.rows / batch)
    return {
        "name": name,
        "model": {
            "hidden": [128] if small else [1024],
            "unit": "silu",
            "blocks": 1,
            "conditioned": True,
        },
        "criterion": {"kind": "dae", "loss": "squared", "sigma": list(NOISE_RANGE)},
        "training": {
            "epochs": max(1, round(STEPS / steps_per_epoch)),
            "batch": batch,
        },
        "sampling": {"sigma": SERVED},
    }


def name_of(path: str) -> str:
    """A model's name from a file's: `My Data (2).csv` becomes `my-data-2`."""
    stem = Path(path).name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9_]+", "-", stem).strip("-_")[:64] or "model"
