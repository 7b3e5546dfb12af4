"""Which rows judge a model, and which ones it is compared with.

| part       | which rows                                          | for                        |
|------------|-----------------------------------------------------|----------------------------|
| training   | rows learnt from                                    | reference, k-means, copies |
| validation | held-out rows that `fit` chose weights or scales by | bandwidth, scales          |
| test       | all other held-out rows, or those of another file   | every figure               |

The manifest records what `fit` chose by which held-out rows (`data.split`). A small data set has no
held-out rows that chose nothing. There a random half of the held-out rows, by the recorded seed, is
for validation and the other half is for the test, and the card says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.artefact import Manifest
from localmoments.columns import Normaliser
from trainer.data import Dataset, Split
from trainer.data.sources import Index
from trainer.evaluate.classes import Classes

MOST_ROWS = 2_000
MOST_TEST, MOST_VALUES = 10_000, 50_000_000
FEWEST_UNTOUCHED = 1_000

# Artefacts without `data.split` were written by code that had these constants.
SEED_BEFORE_RECORDS = 20_140
CHOSE_BEFORE_RECORDS = {"weights": 2_000, "scales": 256}


@dataclass(frozen=True)
class SplitRecord:
    """How many held-out rows chose what, and the seed that deals out the others."""

    seed: int
    chose: Mapping[str, int]


def read_record(manifest: Manifest) -> SplitRecord:
    """From the manifest; for older artefacts, what was in force when they were written."""
    record = manifest.data.get("split")
    if isinstance(record, Mapping):
        return SplitRecord(int(record["seed"]), dict(record["chose"]))
    starts = int(manifest.recipe.get("sampling", {}).get("start_points", 0))
    return SplitRecord(SEED_BEFORE_RECORDS, {**CHOSE_BEFORE_RECORDS, "start points": starts})


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
    facts: Mapping[str, Any]  # the same for the manifest


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
    """At most `count` of them, evenly spaced; `prepare.held_out_rows` picks rows in this way."""
    n = min(count, len(index))
    return index[np.arange(n) * len(index) // max(1, n)]


def part_held_out(split: Split, record: SplitRecord) -> tuple[Index, Index, str]:
    """Validation and test rows of the held-out ones, both sorted, and the test rows in words."""
    held_out = split.validation
    picked = [spread(held_out, count) for count in record.chose.values()]
    touched = np.unique(np.concatenate([*picked, held_out[:0]]))
    untouched = np.setdiff1d(held_out, touched)
    if len(untouched) >= FEWEST_UNTOUCHED:
        words = (
            f"{len(untouched):,} of the {len(held_out):,} held-out rows. The other "
            f"{len(touched):,} chose {_list(record.chose)}, and choose bandwidths and scales here"
        )
        return touched, untouched, words
    if len(held_out) < 2:
        return held_out, held_out, "the one held-out row, which also chose the weights kept"
    order = np.random.default_rng(record.seed).permutation(held_out)
    half = len(held_out) // 2
    words = (
        f"a random half of the {len(held_out):,} held-out rows (seed {record.seed}). They were not "
        f"trained on, but there are too few to spare: they helped to choose {_list(record.chose)}"
    )
    return np.sort(order[:half]), np.sort(order[half:]), words


def _list(chose: Mapping[str, int]) -> str:
    *first, last = (f"the {name}" for name in chose)
    return f"{', '.join(first)} and {last}" if first else last


def rows_for(
    dataset: Dataset,
    split: Split,
    normaliser: Normaliser,
    record: SplitRecord,
    other: Dataset | None = None,
    most: int = MOST_TEST,
) -> Rows:
    """The parts of a data set; `other` holds test rows of its own, such as an official test set."""
    units = units_of(dataset, normaliser, split.train)
    validation, test, words = part_held_out(split, record)
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
    facts = {"seed": record.seed, "chose": dict(record.chose), "validation rows": len(validation),
             "test rows": len(judging)}  # fmt: skip
    return Rows(part(dataset, train), part(dataset, spread(validation, MOST_ROWS)), judging, units,
                words, facts)  # fmt: skip
