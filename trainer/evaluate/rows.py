"""Which rows an evaluation uses, and for what.

| part       | which rows                                          | used for                   |
|------------|-----------------------------------------------------|----------------------------|
| training   | rows that the model was trained on                  | reference, k-means, copies |
| validation | held-out rows that `fit` used to select something   | bandwidth, scales          |
| test       | all other held-out rows, or those of another file   | every figure               |

`fit` has already used nearly every held-out row of a small data set. There a random half of the
held-out rows, drawn with the recorded seed, is for validation and the other half for the test, and
the card says so.

Every number that decides which rows are held out, and which of them `fit` used to select something,
is recorded in the manifest (`data.split`) and read from there. So a later version of this code,
with other constants, cannot turn rows that were used to select the weights into test rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.artefact import Manifest
from localmoments.columns import Normaliser
from localmoments.errors import ArtefactError
from trainer.data import DataOptions, Dataset, Split, split
from trainer.data.sources import Index
from trainer.data.split import spread
from trainer.evaluate.features import Classes

MOST_ROWS = 2_000  # validation rows that are used
MOST_TEST, MOST_VALUES = 10_000, 50_000_000  # test rows; numbers in the training rows


@dataclass(frozen=True)
class SplitRecord:
    """How rows were held out, and how many were used to select what: `data.split` of a manifest."""

    seed: int  # of the random choice of held-out rows, and of the halves of a small set
    chose: Mapping[str, int]  # purpose -> rows, at positions i·len // n of the held-out rows
    most_held_out: int
    fewest_test_rows: int


# The constants of the code that wrote artefacts before these numbers were recorded. Artefacts
# depend on them, so they never change.
BEFORE_RECORDS = SplitRecord(20_140, {"weights": 2_000, "scales": 256}, 10_000, 1_000)


def read_split(manifest: Manifest) -> SplitRecord:
    """The record of a manifest; what is missing was not recorded yet when it was written."""
    body, old = manifest.data.get("split"), BEFORE_RECORDS
    if not isinstance(body, Mapping):
        starts = int(manifest.recipe.get("sampling", {}).get("start_points", 0))
        return SplitRecord(old.seed, {**old.chose, "start points": starts}, old.most_held_out,
                           old.fewest_test_rows)  # fmt: skip
    return SplitRecord(
        int(body["seed"]),
        dict(body["chose"]),
        int(body.get("most_held_out", old.most_held_out)),
        int(body.get("fewest_test_rows", old.fewest_test_rows)),
    )


def split_again(dataset: Dataset, options: DataOptions, manifest: Manifest) -> Split:
    """Hold out the same rows as the `fit` that wrote the manifest.

    Raises:
        ArtefactError: if that is another number of rows of the same data. Some of them may then be
            rows that the model was trained on.
    """
    record = read_split(manifest)
    again = split(dataset, options, seed=record.seed, most=record.most_held_out)
    expected = manifest.data.get("held_out_rows", len(again.held_out))
    is_same_data = dataset.fingerprint == manifest.data.get("fingerprint")
    if is_same_data and len(again.held_out) != expected:
        raise ArtefactError(
            f"{manifest.reference} was trained with {expected:,} held-out rows, but this version "
            f"holds out {len(again.held_out):,} rows of {dataset.name}."
        )
    return again


@dataclass(frozen=True)
class Held:
    """Held-out rows, and training rows to compare with, in the user's units."""

    test: Doubles  # (n, d)
    train: Doubles  # (m, d)


def held_rows(dataset: Dataset, split: Split, most: int = MOST_ROWS) -> Held:
    """At most `most` held-out rows and the same number of training rows spread over the data."""
    every = max(1, len(split.train) // most)
    return Held(
        dataset.source.take(split.held_out[:most]).astype(np.float64),
        dataset.source.take(split.train[::every][:most]).astype(np.float64),
    )


@dataclass(frozen=True)
class Part:
    """Rows with their labels."""

    x: Floats  # (n, d), in the units of `Rows.units`
    labels: Classes | None  # (n,)

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Rows:
    """The three parts of the data, in the units that the figures are computed in."""

    train: Part
    validation: Part
    test: Part
    units: Normaliser  # from the user's units to those of the figures
    description: str  # of the test rows, for the card: `Evaluated on …`
    facts: Mapping[str, Any]  # the same for the manifest


def units_of(dataset: Dataset, normaliser: Normaliser, train: Index) -> Normaliser:
    """The units of the figures: pixels in [0, 1] for images, the model's own units for tables."""
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


def divide_held_out(split: Split, record: SplitRecord) -> tuple[Index, Index, str]:
    """Validation and test rows among the held-out ones, both sorted, and a description of the
    test rows."""
    held_out = split.held_out
    picked = [spread(held_out, count) for count in record.chose.values()]
    touched = np.unique(np.concatenate([*picked, held_out[:0]]))
    untouched = np.setdiff1d(held_out, touched)
    if len(untouched) >= record.fewest_test_rows:
        description = (
            f"{len(untouched):,} of the {len(held_out):,} held-out rows. The other "
            f"{len(touched):,} were used to select {_join(record.chose)}, and are used here to "
            "select bandwidths and scales"
        )
        return touched, untouched, description
    if len(held_out) < 2:
        return held_out, held_out, "the one held-out row, which was also used to select the weights"
    order = np.random.default_rng(record.seed).permutation(held_out)
    half = len(held_out) // 2
    description = (
        f"a random half of the {len(held_out):,} held-out rows (seed {record.seed}). They were not "
        "trained on, but there are too few to set some aside: they were also used to select "
        f"{_join(record.chose)}"
    )
    return np.sort(order[:half]), np.sort(order[half:]), description


def _join(chose: Mapping[str, int]) -> str:
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
    """Divide a data set into training, validation and test rows.

    Args:
        normaliser: the model's.
        other: a data set with test rows of its own, such as an official test set. All held-out
            rows are then validation rows.
        most: the largest number of test rows.
    """
    units = units_of(dataset, normaliser, split.train)
    validation, test, description = divide_held_out(split, record)
    train = spread(split.train, max(most, MOST_VALUES // dataset.dims))

    def part(source: Dataset, index: Index) -> Part:
        labels: NDArray[np.int64] | None = source.labels
        x = units.to_model(source.source.take(index))
        return Part(x, None if labels is None else labels[index])

    if other is not None:
        validation, description = split.held_out, f"all {other.rows:,} rows of {other.name}"
        test_part = part(other, spread(np.arange(other.rows), most))
    else:
        test_part = part(dataset, spread(test, most))
    facts = {"seed": record.seed, "chose": dict(record.chose), "validation rows": len(validation),
             "test rows": len(test_part)}  # fmt: skip
    return Rows(part(dataset, train), part(dataset, spread(validation, MOST_ROWS)), test_part,
                units, description, facts)  # fmt: skip
