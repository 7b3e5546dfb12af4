"""Which rows are learnt from and which are kept to judge by.

The choice never depends on the run's seed: two runs on the same data are judged by the
same rows.
"""

from dataclasses import dataclass

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
