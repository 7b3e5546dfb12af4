"""Which rows judge a model, and which ones it is compared with.

| part       | which rows                                            | for                        |
|------------|-------------------------------------------------------|----------------------------|
| training   | rows learnt from                                      | reference, k-means, copies |
| validation | held-out rows that chose the weights that were kept   | bandwidth, scales          |
| test       | all other held-out rows, or those of another file     | every figure               |

A small data set has no held-out rows that chose nothing. There every second held-out row is for
validation and the others are for the test, and the card says so.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.core.normaliser import Normaliser
from service.core.types import Doubles, Floats
from trainer.data import Dataset, Split
from trainer.data.source import Index
from trainer.evaluate.classes import Classes
from trainer.export import CALIBRATION_ROWS
from trainer.fit import VALIDATION_ROWS

MOST_ROWS = 2_000
MOST_TEST, MOST_VALUES = 10_000, 50_000_000
FEWEST_UNTOUCHED = 1_000


@dataclass(frozen=True)
class Held:
    """Rows to judge by and rows to compare with, in the user's units."""

    test: Doubles  # (n, d)
    train: Doubles  # (m, d)


def held_rows(dataset: Dataset, split: Split, most: int = MOST_ROWS) -> Held:
    """Held-out rows, and as many training rows spread over the data."""
    every = max(1, len(split.train) // most)
    return Held(
        dataset.source.take(split.validation[:most]).astype(np.float64),
        dataset.source.take(split.train[::every][:most]).astype(np.float64),
    )


@dataclass(frozen=True)
class Part:
    x: Floats  # (n, d), in the units of `Rows.units`
    labels: Classes | None  # (n,)

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Rows:
    train: Part
    validation: Part
    test: Part
    units: Normaliser  # from the user's units to those the figures are made in
    words: str  # which rows the test rows are


def units_of(dataset: Dataset, normaliser: Normaliser, train: Index) -> Normaliser:
    """Pixels in [0, 1] for images; the model's own units for tables."""
    if dataset.image is None:
        return normaliser
    d = dataset.dims
    if dataset.source.dtype.kind in "ui":
        low, high = 0.0, float(np.iinfo(dataset.source.dtype).max)
    else:
        some = dataset.source.take(spread(train, MOST_ROWS))
        low, high = float(some.min()), float(some.max())
        if low >= 0 and high <= 255:
            low, high = 0.0, 1.0 if high <= 1 else 255.0
    return Normaliser(np.full(d, low), np.full(d, (high - low) or 1.0))


def spread(index: Index, count: int) -> Index:
    """At most so many, evenly over all; as `held_out_rows` picks them."""
    n = min(count, len(index))
    return index[np.arange(n) * len(index) // max(1, n)]


def parted(split: Split, start_points: int) -> tuple[Index, Index, str]:
    """Validation and test rows of the held-out ones, and the test rows in words."""
    held_out = split.validation
    counts = (VALIDATION_ROWS, CALIBRATION_ROWS, start_points)
    touched = np.unique(np.concatenate([spread(held_out, count) for count in counts]))
    untouched = np.setdiff1d(held_out, touched)
    if len(untouched) >= FEWEST_UNTOUCHED:
        words = (
            f"{len(untouched):,} of the {len(held_out):,} held-out rows, {_place(untouched)}; the "
            f"other {len(touched):,} chose weights, bandwidths and scales"
        )
        return touched, untouched, words
    if len(held_out) < 2:
        return held_out, held_out, "the one held-out row, which also chose the weights kept"
    words = (
        f"every second of the {len(held_out):,} held-out rows; they were not learnt from, but all "
        "of them chose which weights were kept"
    )
    return held_out[1::2], held_out[::2], words


def _place(index: Index) -> str:
    return f"from row {int(index[0]):,} to {int(index[-1]):,}"


def rows_for(
    dataset: Dataset,
    split: Split,
    normaliser: Normaliser,
    start_points: int,
    other: Dataset | None = None,
    most: int = MOST_TEST,
) -> Rows:
    """The parts of a data set; `other` holds test rows of its own, such as an official test set."""
    units = units_of(dataset, normaliser, split.train)
    validation, test, words = parted(split, start_points)
    train = spread(split.train, max(most, MOST_VALUES // dataset.dims))

    def part(source: Dataset, index: Index) -> Part:
        labels: NDArray[np.int64] | None = source.labels
        x = units.to_model(source.source.take(index))
        return Part(x, None if labels is None else labels[index])

    if other is not None:
        validation, words = split.validation, f"all {other.rows:,} rows of {other.name}"
        judging = part(other, spread(np.arange(other.rows), most))
    else:
        judging = part(dataset, spread(test, most))
    return Rows(part(dataset, train), part(dataset, spread(validation, MOST_ROWS)), judging, units,
                words)  # fmt: skip
