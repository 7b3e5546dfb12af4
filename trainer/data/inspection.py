"""Look at the values and choose how the model sees them: x_model = (x − shift) / scale.

bytes               → ÷ 255                              sigmoid decoder
within [0, 1]       → as they are                        sigmoid decoder
pictures otherwise  → one mean and spread for all pixels linear decoder
tables otherwise    → a mean and spread per column       linear decoder
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data.dataset import Dataset
from trainer.data.options import DataOptions
from trainer.data.source import Index
from trainer.data.statistics import Float, Statistics, statistics
from trainer.data.tables import plural
from trainer.errors import DataError

_LARGEST, _SMALLEST = 1e37, 1e-30  # float32 ends at 3e38 and 1e-38; leave room to compute
_ROUNDING = 1e-14  # a spread this small against the values is the rounding of their mean
_SHOWN = 5


@dataclass(frozen=True)
class Examination:
    minimum: Float  # (d,), over all rows
    maximum: Float  # (d,)
    mean: Float  # (d,), over the training rows
    std: Float  # (d,)
    bounded: bool  # every value the model sees lies in [0, 1]
    shift: Float  # (d,)
    scale: Float  # (d,)
    decoder: str  # "sigmoid" | "linear"
    notes: tuple[str, ...]


def examine(dataset: Dataset, options: DataOptions, train_index: Index) -> Examination:
    seen = statistics(dataset.source, train_index)
    _check_finite(dataset, seen)
    _check_range(dataset, seen)
    mean, std = seen.moments.mean, seen.moments.std
    shift, scale = _normaliser(dataset, options.normalise, seen)
    scale = np.where(scale == 0, 1.0, scale)
    low, high = (seen.minimum - shift) / scale, (seen.maximum - shift) / scale
    bounded = bool(low.min() >= 0 and high.max() <= 1) and options.normalise != "standard"
    notes = _notes(dataset, options, seen)
    return Examination(seen.minimum, seen.maximum, mean, std, bounded, shift, scale,
                       "sigmoid" if bounded else "linear", notes)  # fmt: skip


def _normaliser(dataset: Dataset, rule: str, seen: Statistics) -> tuple[Float, Float]:
    zero, one = np.zeros(dataset.dims), np.ones(dataset.dims)
    within = seen.minimum.min() >= 0 and seen.maximum.max() <= 1
    if rule == "none" or (rule == "auto" and within):
        return zero, one
    if dataset.source.dtype == np.uint8 and rule != "standard" and not within:
        return zero, 255 * one
    if rule == "unit":
        return _unit(dataset, seen)
    return _standard(dataset, seen)


def _unit(dataset: Dataset, seen: Statistics) -> tuple[Float, Float]:
    low, high = seen.minimum, seen.maximum
    if dataset.image is not None:
        low, high = np.full_like(low, low.min()), np.full_like(high, high.max())
    return low, high - low


def _standard(dataset: Dataset, seen: Statistics) -> tuple[Float, Float]:
    mean, std = seen.moments.mean, seen.moments.std
    if dataset.image is None:
        flat = std <= _ROUNDING * np.maximum(np.abs(seen.minimum), np.abs(seen.maximum))
        return mean, np.where(flat, 0.0, std)
    m = mean.mean()
    pooled = np.sqrt((std**2 + (mean - m) ** 2).mean())  # the law of total variance
    return np.full_like(mean, m), np.full_like(std, pooled)


def _check_finite(dataset: Dataset, seen: Statistics) -> None:
    bad = np.flatnonzero(seen.bad)
    if not len(bad):
        return
    shown = ", ".join(f"{dataset.feature(int(j))} ({seen.bad[j]})" for j in bad[:_SHOWN])
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    raise DataError(
        f"{dataset.name} has {plural(int(seen.bad.sum()), 'value')} that are NaN or infinite, "
        f"first in row {seen.bad_row}: {shown}{more}; remove or replace them first."
    )


def _check_range(dataset: Dataset, seen: Statistics) -> None:
    spans = seen.maximum - seen.minimum
    if not spans.any():
        raise DataError(f"Every row of {dataset.name} is the same: there is nothing to learn.")
    largest = np.maximum(np.abs(seen.minimum), np.abs(seen.maximum))
    wrong = (largest > _LARGEST) | ((spans > 0) & (spans < _SMALLEST))
    if wrong.any():
        j = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"{dataset.feature(j).capitalize()} of {dataset.name} runs from {seen.minimum[j]:.3g} "
            f"to {seen.maximum[j]:.3g}, outside what float32 can hold; rescale it first."
        )


def _notes(dataset: Dataset, options: DataOptions, seen: Statistics) -> tuple[str, ...]:
    top = seen.maximum.max()
    notes = []
    if dataset.source.dtype == np.uint8 and 1 < top <= 64 and options.normalise == "auto":
        notes.append(
            f"The bytes only reach {top:.0f} of 255; "
            "--set data.normalise=standard may serve better."
        )
    if dataset.image is None:
        notes += _column_notes(dataset, seen)
    return tuple(notes)


def _column_notes(dataset: Dataset, seen: Statistics) -> list[str]:
    flat = np.flatnonzero(seen.minimum == seen.maximum)
    if not len(flat):
        return []
    return [f"{_named(dataset, flat)} constant: nothing can be learnt there."]


def _named(dataset: Dataset, columns: NDArray[np.intp]) -> str:
    shown = ", ".join(dataset.feature(int(j)) for j in columns[:_SHOWN])
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    text = f"{shown}{more} {'is' if len(columns) == 1 else 'are'}"
    return text[0].upper() + text[1:]
