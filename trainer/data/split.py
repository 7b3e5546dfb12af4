"""Which rows are learnt from and which are kept to judge by.

The choice never depends on the run's seed: two runs on the same data are judged by the same rows.
`record_split` says in the manifest how to find them again, and which of them `fit` used to choose
something. `evaluate` reads that record, so a later version of this code cannot turn rows that chose
the weights into test rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.data.dataset import Dataset
from trainer.data.options import DataOptions
from trainer.data.source import Index
from trainer.errors import DataError

MOST_HELD_OUT = 10_000
_SPLIT_SEED = 20_140


@dataclass(frozen=True)
class Split:
    train: Index  # sorted
    validation: Index  # sorted


def split(dataset: Dataset, options: DataOptions) -> Split:
    """The data set's own validation rows where it has them, else a fixed random sample."""
    held_out = np.zeros(dataset.rows, np.bool_)
    held_out[_chosen(dataset, options)] = True
    train, validation = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    if not len(train) or not len(validation):
        raise DataError(
            f"{dataset.name} has {len(train)} rows to learn from and {len(validation)} to judge "
            "by; at least one of each is needed."
        )
    return Split(train.astype(np.int64, copy=False), validation.astype(np.int64, copy=False))


def record_split(dataset: Dataset, parts: Split, chose: Mapping[str, int]) -> dict[str, Any]:
    """The split, for the manifest. `chose`: for each purpose the number of held-out rows that `fit`
    picked, at positions i·len // n of the sorted held-out rows.

    Example: `{"seed": 20140, "held_out": "random", "chose": {"weights": 2000, "scales": 256}}`.
    """
    held_out = "random" if dataset.held_out is None else "set by the data"
    return {
        "seed": _SPLIT_SEED,
        "held_out": held_out,
        "chose": {name: min(count, len(parts.validation)) for name, count in chose.items()},
    }


def _chosen(dataset: Dataset, options: DataOptions) -> Index:
    if dataset.held_out is not None:
        return dataset.held_out
    n = _count(dataset.rows, options.holdout)
    rng = np.random.default_rng(_SPLIT_SEED)
    return rng.choice(dataset.rows, n, replace=False, shuffle=False)


def _count(rows: int, holdout: float | int) -> int:
    wanted = holdout if isinstance(holdout, int) else round(rows * holdout)
    if isinstance(holdout, int) and holdout >= rows:
        raise DataError(f"data.holdout takes {holdout} of {rows} rows: none is left to learn from.")
    return min(max(1, wanted), MOST_HELD_OUT, rows - 1)
