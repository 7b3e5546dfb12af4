"""Inspect the values of a data set: statistics, unusable values, and the choice of normaliser.

The model sees x_model = (x − shift) / scale. With `data.normalise = "auto"`:

bytes               → divided by 255                      sigmoid decoder
within [0, 1]       → unchanged                           sigmoid decoder
other images        → one mean and scale for all pixels   linear decoder
other tables        → a mean and scale per column         linear decoder

Statistics are computed in one pass over blocks of rows. Blocks a and b are merged by the rule of
Chan, Golub & LeVeque. It keeps the digits that Σx² − (Σx)²/n would lose, for example in a column
of time stamps:

    δ = m_b − m_a,   m = m_a + δ n_b/n,   M2 = M2_a + M2_b + δ² n_a n_b/n
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data.dataset import DataOptions, Dataset, Notes
from trainer.data.sources import BLOCK_VALUES, Index, Rows, Source, blocks
from trainer.data.tables import format_count
from trainer.errors import DataError

Float = NDArray[np.float64]

# float32 reaches from 1e-38 to 3e38; this leaves room for computing.
_LARGEST, _SMALLEST = 1e37, 1e-30
_ROUNDING = 1e-14  # a standard deviation this small relative to the values is rounding
_SHOWN = 5  # columns that a sentence names
_DESCRIBED = 10  # columns that `describe` lists


@dataclass(frozen=True)
class RunningMoments:
    """Mean and sum of squared deviations of the rows so far."""

    n: int
    mean: Float  # (d,)
    m2: Float  # (d,), the sum of squared deviations from the mean

    def merge(self, other: RunningMoments) -> RunningMoments:
        n = self.n + other.n
        if not other.n:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        return RunningMoments(n, mean, self.m2 + other.m2 + delta**2 * (self.n * other.n / n))

    @property
    def std(self) -> Float:
        return np.sqrt(self.m2 / self.n)


@dataclass(frozen=True)
class Statistics:
    """What one pass over the rows found."""

    minimum: Float  # (d,), over all rows
    maximum: Float  # (d,), over all rows
    moments: RunningMoments  # over the training rows only
    bad_counts: NDArray[np.int64]  # (d,), values that are NaN or infinite
    bad_row: int | None  # the first row with such a value


@dataclass(frozen=True)
class Inspection:
    """The statistics of a data set and what was chosen for it."""

    minimum: Float  # (d,), over all rows
    maximum: Float  # (d,)
    mean: Float  # (d,), over the training rows
    std: Float  # (d,)
    shift: Float  # (d,)
    scale: Float  # (d,)
    decoder: str  # "sigmoid" | "linear"
    notes: Notes


def inspect_rows(dataset: Dataset, options: DataOptions, train_index: Index) -> Inspection:
    """Compute statistics and choose normaliser and decoder.

    train_index: the rows whose mean and standard deviation are used.

    Raises DataError if a value is NaN or infinite or outside the range of float32, or if all rows
    are equal.
    """
    stats = compute_statistics(dataset.source, train_index)
    _check_finite(dataset, stats)
    _check_range(dataset, stats)
    mean, std = stats.moments.mean, stats.moments.std
    shift, scale = _choose_normaliser(dataset, options.normalise, stats)
    scale = np.where(scale == 0, 1.0, scale)
    low, high = (stats.minimum - shift) / scale, (stats.maximum - shift) / scale
    is_bounded = low.min() >= 0 and high.max() <= 1 and options.normalise != "standard"
    return Inspection(stats.minimum, stats.maximum, mean, std, shift, scale,
                      "sigmoid" if is_bounded else "linear",
                      _make_notes(dataset, options, stats))  # fmt: skip


def compute_statistics(source: Source, train: Index, values: int = BLOCK_VALUES) -> Statistics:
    """Compute statistics in one pass, in blocks of about `values` values.

    The range is that of all rows; mean and deviation are those of the rows `train`.
    """
    is_train = np.zeros(source.rows, np.bool_)
    is_train[train] = True
    total = _empty_statistics(source.dims)
    with np.errstate(invalid="ignore", over="ignore"):  # bad values are counted instead
        for start, block in blocks(source, values):
            part = _summarise_block(block, is_train[start : start + len(block)], start)
            total = _merge_statistics(total, part)
    return total


def compute_moments(x: Float) -> RunningMoments:
    """Compute the moments of a block of rows (n, d)."""
    mean = x.mean(0)
    away = x - mean
    return RunningMoments(len(x), mean, np.einsum("ij,ij->j", away, away))


def _empty_statistics(dims: int) -> Statistics:
    zeros, none = np.zeros(dims), np.zeros(dims, np.int64)
    moments = RunningMoments(0, zeros, zeros)
    return Statistics(zeros + np.inf, zeros - np.inf, moments, none, None)


def _summarise_block(block: Rows, is_train: NDArray[np.bool_], start: int) -> Statistics:
    bad_counts, row = _count_bad_values(block)
    x = np.asarray(block if is_train.all() else block[is_train], np.float64)  # (n, d)
    moments = compute_moments(x) if len(x) else _empty_statistics(block.shape[1]).moments
    low, high = block.min(0).astype(np.float64), block.max(0).astype(np.float64)
    return Statistics(low, high, moments, bad_counts, None if row is None else start + row)


def _count_bad_values(block: Rows) -> tuple[NDArray[np.int64], int | None]:
    """Return the number of NaN and infinite values per column, and the first row with one."""
    # The sum of all values is finite only if every value is: a cheap test for the usual case.
    if block.dtype.kind != "f" or np.isfinite(block.sum(dtype=np.float64)):
        return np.zeros(block.shape[1], np.int64), None
    is_bad = ~np.isfinite(block)
    rows = np.flatnonzero(is_bad.any(1))
    return is_bad.sum(0), int(rows[0]) if len(rows) else None


def _merge_statistics(a: Statistics, b: Statistics) -> Statistics:
    return Statistics(
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
        a.moments.merge(b.moments),
        a.bad_counts + b.bad_counts,
        b.bad_row if a.bad_row is None else a.bad_row,
    )


def _choose_normaliser(dataset: Dataset, rule: str, stats: Statistics) -> tuple[Float, Float]:
    """Return shift and scale, each (d,); a scale of 0 stands for a constant column."""
    zero, one = np.zeros(dataset.dims), np.ones(dataset.dims)
    is_unit = stats.minimum.min() >= 0 and stats.maximum.max() <= 1
    if rule == "none" or (rule == "auto" and is_unit):
        return zero, one
    if dataset.source.dtype == np.uint8 and rule != "standard" and not is_unit:
        return zero, 255 * one
    if rule == "unit":
        return _scale_to_unit(dataset, stats)
    return _standardise(dataset, stats)


def _scale_to_unit(dataset: Dataset, stats: Statistics) -> tuple[Float, Float]:
    low, high = stats.minimum, stats.maximum
    if dataset.image is not None:
        low, high = np.full_like(low, low.min()), np.full_like(high, high.max())
    return low, high - low


def _standardise(dataset: Dataset, stats: Statistics) -> tuple[Float, Float]:
    mean, std = stats.moments.mean, stats.moments.std
    if dataset.image is None:
        largest = np.maximum(np.abs(stats.minimum), np.abs(stats.maximum))
        is_constant = std <= _ROUNDING * largest
        return mean, np.where(is_constant, 0.0, std)
    m = mean.mean()
    pooled = np.sqrt((std**2 + (mean - m) ** 2).mean())  # law of total variance
    return np.full_like(mean, m), np.full_like(std, pooled)


def _check_finite(dataset: Dataset, stats: Statistics) -> None:
    bad = np.flatnonzero(stats.bad_counts)
    if not len(bad):
        return
    shown = ", ".join(
        f"{dataset.name_feature(int(j))} ({stats.bad_counts[j]})" for j in bad[:_SHOWN]
    )
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    raise DataError(
        f"{dataset.name} has {format_count(int(stats.bad_counts.sum()), 'value')} that are NaN or "
        f"infinite, first in row {stats.bad_row}: {shown}{more}. Remove or replace them."
    )


def _check_range(dataset: Dataset, stats: Statistics) -> None:
    spans = stats.maximum - stats.minimum
    if not spans.any():
        raise DataError(f"All rows of {dataset.name} are equal, so there is nothing to learn.")
    largest = np.maximum(np.abs(stats.minimum), np.abs(stats.maximum))
    is_outside = (largest > _LARGEST) | ((spans > 0) & (spans < _SMALLEST))
    if is_outside.any():
        j = int(np.flatnonzero(is_outside)[0])
        raise DataError(
            f"{dataset.name_feature(j).capitalize()} of {dataset.name} has values from "
            f"{stats.minimum[j]:.3g} to {stats.maximum[j]:.3g}, which float32 cannot represent. "
            "Rescale it first."
        )


def _make_notes(dataset: Dataset, options: DataOptions, stats: Statistics) -> Notes:
    notes = []
    top = stats.maximum.max()
    if dataset.source.dtype == np.uint8 and 1 < top <= 64 and options.normalise == "auto":
        notes.append(
            f"The largest byte is {top:.0f} of 255; --set data.normalise=standard may work better."
        )
    constant = np.flatnonzero(stats.minimum == stats.maximum)
    if dataset.image is None and len(constant):
        shown = ", ".join(dataset.name_feature(int(j)) for j in constant[:_SHOWN])
        more = f" and {len(constant) - _SHOWN} more" if len(constant) > _SHOWN else ""
        verb = "is" if len(constant) == 1 else "are"
        notes.append(
            f"{shown[0].upper()}{shown[1:]}{more} {verb} constant: nothing to learn there."
        )
    return tuple(notes)


def describe(dataset: Dataset, inspection: Inspection) -> str:
    """Describe a data set on one screen, for `localmoments data PATH`."""
    kind, digest = dataset.fingerprint.split(":")
    labels = dataset.labels
    facts = {
        "name": dataset.name,
        "rows": f"{dataset.rows:,}",
        "columns": f"{dataset.dims:,} ({dataset.source.dtype})",
        "image": "×".join(map(str, dataset.image)) if dataset.image else "no",
        "labels": "no" if labels is None else f"{len(np.unique(labels))} classes",
        "range": f"{inspection.minimum.min():.6g} to {inspection.maximum.max():.6g}",
        "normaliser": _describe_normaliser(inspection),
        "decoder": inspection.decoder,
        "fingerprint": f"{kind}:{digest[:16]}",
    }
    lines = [f"{key:<12} {value}" for key, value in facts.items()]
    notes = [f"note         {note}" for note in (*dataset.notes, *inspection.notes)]
    return "\n".join([*lines, *notes, "", *_describe_features(dataset, inspection)])


def _describe_normaliser(inspection: Inspection) -> str:
    shift, scale = inspection.shift, inspection.scale
    if np.ptp(shift) or np.ptp(scale):
        return "(x - shift) / scale, per column"
    if shift[0] == 0 and scale[0] == 1:
        return "none"
    return f"x / {scale[0]:g}" if shift[0] == 0 else f"(x - {shift[0]:.6g}) / {scale[0]:.6g}"


def _describe_features(dataset: Dataset, inspection: Inspection) -> list[str]:
    count = min(_DESCRIBED, dataset.dims)
    names = [dataset.name_feature(j).split(" ", 1)[1] for j in range(count)]
    width = max(12, *(len(n) for n in names))
    lines = [f"{'column':<{width}} {'min':>12} {'max':>12} {'mean':>12} {'std':>12}"]
    for j, name in enumerate(names):
        values = (inspection.minimum[j], inspection.maximum[j], inspection.mean[j],
                  inspection.std[j])  # fmt: skip
        lines.append(f"{name:<{width}} " + " ".join(f"{v:>12.5g}" for v in values))
    more = dataset.dims - len(names)
    return [*lines, f"... and {more:,} more"] if more else lines
