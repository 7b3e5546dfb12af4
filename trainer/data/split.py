"""Split rows into those to train on and those kept for validation.

The split never depends on the run's seed, so two runs on the same data are validated on the same
rows. `record_split` writes into the manifest how to find them again, and which of them `fit` used
to choose something. `evaluate` reads that record, so a later version of this code cannot turn rows
that chose the weights into test rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.data.dataset import DataOptions, Dataset
from trainer.data.sources import Index
from trainer.errors import DataError

MOST_HELD_OUT = 10_000  # validation rows at most
_SPLIT_SEED = 20_140


@dataclass(frozen=True)
class Split:
    """Indices of rows, sorted and disjoint; together all rows."""

    train: Index
    validation: Index


def split(dataset: Dataset, options: DataOptions) -> Split:
    """Return the data set's own validation rows if it defines them, else a fixed random sample.

    Raises DataError if no row is left on either side.
    """
    is_held_out = np.zeros(dataset.rows, np.bool_)
    is_held_out[_choose_validation_rows(dataset, options)] = True
    train, validation = np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
    if not len(train) or not len(validation):
        raise DataError(
            f"{dataset.name} has {len(train)} rows for training and {len(validation)} for "
            "validation; at least one of each is needed."
        )
    return Split(train.astype(np.int64, copy=False), validation.astype(np.int64, copy=False))


def record_split(dataset: Dataset, parts: Split, chose: Mapping[str, int]) -> dict[str, Any]:
    """Describe the split for the manifest.

    chose: for each purpose, the number n of validation rows that `fit` used for it, at positions
    i·len // n of the sorted validation rows.

    Example: `{"seed": 20140, "held_out": "random", "chose": {"weights": 2000, "scales": 256}}`.
    """
    held_out = "random" if dataset.held_out is None else "set by the data"
    return {
        "seed": _SPLIT_SEED,
        "held_out": held_out,
        "chose": {name: min(count, len(parts.validation)) for name, count in chose.items()},
    }


def _choose_validation_rows(dataset: Dataset, options: DataOptions) -> Index:
    if dataset.held_out is not None:
        return dataset.held_out
    n = _count_validation_rows(dataset.rows, options.holdout)
    rng = np.random.default_rng(_SPLIT_SEED)
    return rng.choice(dataset.rows, n, replace=False, shuffle=False)


def _count_validation_rows(rows: int, holdout: float | int) -> int:
    if isinstance(holdout, int) and holdout >= rows:
        raise DataError(
            f"`data.holdout` takes {holdout} of {rows} rows, so none is left for training."
        )
    count = holdout if isinstance(holdout, int) else round(rows * holdout)
    return min(max(1, count), MOST_HELD_OUT, rows - 1)
