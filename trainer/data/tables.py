"""What CSV and Parquet tables share: the choice of columns and the handling of missing values."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.dataset import DataOptions, Notes
from trainer.data.sources import Rows
from trainer.errors import DataError

_MOST_SHOWN = 20  # columns that a sentence names


def choose_columns(path: Path, names: Sequence[str], options: DataOptions) -> tuple[str, ...]:
    """Return `options.columns` in their order, or all `names`, without `options.drop`.

    Raises DataError if a column does not exist or none is left.
    """
    unknown = [n for n in (*options.columns, *options.drop) if n not in names]
    if unknown:
        raise DataError(
            f"{path} has no column {quote_names(unknown)}; its columns are "
            f"{quote_names(names, _MOST_SHOWN)}."
        )
    chosen = tuple(n for n in options.columns or tuple(names) if n not in options.drop)
    if not chosen:
        raise DataError(f"`data.columns` and `data.drop` leave no column of {path}.")
    return chosen


def refuse_text(path: Path, text: Mapping[str, object]) -> None:
    """Raise DataError if `text`, the columns that are not numeric with a value each, has any."""
    if not text:
        return
    shown = ", ".join(f"'{n}' (such as {_shorten(v)})" for n, v in list(text.items())[:10])
    names = ", ".join(f'"{n}"' for n in text)
    raise DataError(
        f"{path} has {format_count(len(text), 'column')} that {'is' if len(text) == 1 else 'are'} "
        f"not numeric: {shown}. Convert to numbers, or drop with --set 'data.drop=[{names}]'."
    )


class MissingValues:
    """Counts the missing values (NaN) of a table block by block and applies `data.missing`.

    policy: "refuse" raises, "drop" leaves out rows with a missing value, "mean" fills in the mean
    of the column.
    """

    def __init__(self, path: Path, features: tuple[str, ...], policy: str) -> None:
        self.path, self.features, self.policy = path, features, policy
        self.counts = np.zeros(len(features), np.int64)
        self.sums = np.zeros(len(features))
        self.rows = self.dropped = 0

    def filter_block(self, block: Rows) -> Rows:
        """Count the missing values of a block (n, d) and return the rows to keep."""
        is_missing = np.isnan(block)  # (n, d)
        self.rows += len(block)
        self.counts += is_missing.sum(0)
        if self.policy == "mean":
            self.sums += np.where(is_missing, 0.0, block).sum(0, dtype=np.float64)
        if self.policy != "drop":
            return block
        is_complete = ~is_missing.any(1)
        self.dropped += int(len(block) - is_complete.sum())
        return block[is_complete]

    def finish(self) -> tuple[NDArray[np.float64] | None, Notes]:
        """After the last block, return the values (d,) to fill in, or None, and notes.

        Raises DataError if the policy is "refuse" and values are missing, or if nothing is left.
        """
        if not self.counts.any():
            return None, ()
        if self.policy == "refuse":
            raise DataError(
                f"{self.path} has missing values in {self._list_counts()}. Use --set "
                "data.missing=drop to leave out these rows, or --set data.missing=mean to fill in "
                "the mean of the column."
            )
        if self.policy == "drop":
            return None, self._note_dropped()
        note = f"Missing values were replaced by the mean of the column: {self._list_counts()}."
        return self._compute_means(), (note,)

    def _note_dropped(self) -> Notes:
        if self.dropped == self.rows:
            raise DataError(
                f"Every row of {self.path} has a missing value, in {self._list_counts()}. Leave "
                "out such columns with `data.drop`, or use --set data.missing=mean."
            )
        return (f"{self.dropped} of {self.rows} rows had missing values and were left out.",)

    def _compute_means(self) -> NDArray[np.float64]:
        empty = [f for f, c in zip(self.features, self.counts, strict=True) if c == self.rows]
        if empty:
            names = ", ".join(f'"{n}"' for n in empty)
            raise DataError(
                f"{self.path} has no values at all in column {quote_names(empty)}. Leave it out "
                f"with --set 'data.drop=[{names}]'."
            )
        means: NDArray[np.float64] = self.sums / (self.rows - self.counts)
        return means

    def _list_counts(self) -> str:
        pairs = [(f, c) for f, c in zip(self.features, self.counts, strict=True) if c]
        shown = ", ".join(f"column '{f}' ({c})" for f, c in pairs[:_MOST_SHOWN])
        more = len(pairs) - _MOST_SHOWN
        return shown + (f" and {more} more columns" if more > 0 else "")


def to_matrix(columns: Sequence[Any], rows: int, dtype: np.dtype[Any]) -> Rows:
    """Convert Arrow columns to an array (rows, d) with NaN for null."""
    out = np.empty((rows, len(columns)), dtype)
    for j, column in enumerate(columns):
        out[:, j] = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return out


def quote_names(names: Sequence[str], most: int = 10) -> str:
    """Join names in quotes, at most `most` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{n}'" for n in names[:most]) + more


def format_count(n: int, word: str) -> str:
    """Return "1 word" or "n words"."""
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _shorten(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
