"""Split rows into those to train on and those kept for validation.

The split never depends on the run's seed, so two runs on the same data are validated on the same
rows. `record_split` writes into the manifest how to find them again, and which of them `fit` used
to select something. `evaluate` reads that record, so a later version of this code cannot turn rows
that were used to select the weights into test rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.data.dataset import DataOptions, Dataset
from trainer.data.sources import Index
from trainer.errors import DataError

# `record_split` writes these into the manifest, and `evaluate` reads them from there.
SPLIT_SEED = 20_140
MOST_HELD_OUT = 10_000
FEWEST_TEST_ROWS = 1_000  # with fewer unused held-out rows, a random half of all is the test set


@dataclass(frozen=True)
class Split:
    """Indices of rows, sorted and disjoint; together all rows."""

    train: Index
    held_out: Index


def split(
    dataset: Dataset, options: DataOptions, *, seed: int | None = None, most: int | None = None
) -> Split:
    """Return the data set's own validation rows if it defines them, else a fixed random sample.

    Args:
        seed: of the random sample; SPLIT_SEED by default.
        most: the largest number of rows in it; MOST_HELD_OUT by default.

    Raises:
        DataError: no row is left on either side.
    """
    seed = SPLIT_SEED if seed is None else seed
    most = MOST_HELD_OUT if most is None else most
    is_held_out = np.zeros(dataset.rows, np.bool_)
    is_held_out[_choose_validation_rows(dataset, options, seed, most)] = True
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
        "seed": SPLIT_SEED,
        "most_held_out": MOST_HELD_OUT,
        "fewest_test_rows": FEWEST_TEST_ROWS,
        "held_out": held_out,
        "chose": {name: min(count, len(parts.held_out)) for name, count in chose.items()},
    }


def _choose_validation_rows(dataset: Dataset, options: DataOptions, seed: int, most: int) -> Index:
    if dataset.held_out is not None:
        return dataset.held_out
    n = _count_validation_rows(dataset.rows, options.holdout, most)
    rng = np.random.default_rng(seed)
    return rng.choice(dataset.rows, n, replace=False, shuffle=False)


def _count_validation_rows(rows: int, holdout: float | int, most: int) -> int:
    count = holdout if isinstance(holdout, int) else round(rows * holdout)
    if isinstance(holdout, int) and holdout >= rows:
        raise DataError(
            f"`data.holdout` takes {holdout} of {rows} rows, so none is left for training."
        )
    return min(max(1, count), most, rows - 1)


def spread(index: Index, count: int) -> Index:
    """At most `count` of the rows in `index`, evenly spaced: those at positions i·len // n."""
    n = min(count, len(index))
    return index[np.arange(n) * len(index) // max(1, n)]
