"""What every table shares: choosing columns, refusing text, and dealing with gaps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.options import DataOptions
from trainer.data.source import Rows
from trainer.errors import DataError


def choose_columns(path: Path, names: Sequence[str], options: DataOptions) -> tuple[str, ...]:
    """`columns` in the order given, or all of the table's, without `drop`."""
    unknown = [n for n in (*options.columns, *options.drop) if n not in names]
    if unknown:
        raise DataError(
            f"{path} has no column {quoted(unknown)}; its columns are {quoted(names, 20)}."
        )
    wanted = tuple(n for n in options.columns or tuple(names) if n not in options.drop)
    if not wanted:
        raise DataError(f"No column of {path} is left after data.columns and data.drop.")
    return wanted


def refuse_text(path: Path, text: Mapping[str, object]) -> None:
    """`text`: the columns that hold no numbers, each with a value from it."""
    if not text:
        return
    shown = ", ".join(f"'{n}' (such as {_short(v)})" for n, v in list(text.items())[:10])
    names = ", ".join(f'"{n}"' for n in text)
    raise DataError(
        f"{path} has {plural(len(text), 'column')} that {'is' if len(text) == 1 else 'are'} "
        f"not numeric: {shown}; turn them into numbers or leave them out with "
        f"--set 'data.drop=[{names}]'."
    )


class Gaps:
    """Missing values of a table, met block by block: counted, and dropped where told."""

    def __init__(self, path: Path, features: tuple[str, ...], policy: str) -> None:
        self.path, self.features, self.policy = path, features, policy
        self.counts = np.zeros(len(features), np.int64)
        self.sums = np.zeros(len(features))
        self.rows = self.dropped = 0

    def admit(self, block: Rows) -> Rows:
        gaps = np.isnan(block)  # (n, d)
        self.rows += len(block)
        self.counts += gaps.sum(0)
        if self.policy == "mean":
            self.sums += np.where(gaps, 0.0, block).sum(0, dtype=np.float64)
        if self.policy != "drop":
            return block
        whole = ~gaps.any(1)
        self.dropped += int(len(block) - whole.sum())
        return block[whole]

    def settle(self) -> tuple[NDArray[np.float64] | None, tuple[str, ...]]:
        """After the last block: the values to fill gaps with, and what to tell the user."""
        if not self.counts.any():
            return None, ()
        if self.policy == "refuse":
            raise DataError(
                f"{self.path} has missing values in {self._counted()}; go on with "
                "--set data.missing=drop (leaves those rows out) or --set data.missing=mean "
                "(fills in the column's mean)."
            )
        if self.policy == "drop":
            return None, self._dropped()
        return self._means(), (f"Missing values were replaced by the mean: {self._counted()}.",)

    def _dropped(self) -> tuple[str, ...]:
        if self.dropped == self.rows:
            raise DataError(
                f"Every row of {self.path} has a missing value, in {self._counted()}; leave such "
                "columns out with data.drop, or use --set data.missing=mean."
            )
        return (f"{self.dropped} of {self.rows} rows had missing values and were left out.",)

    def _means(self) -> NDArray[np.float64]:
        empty = [f for f, c in zip(self.features, self.counts, strict=True) if c == self.rows]
        if empty:
            names = ", ".join(f'"{n}"' for n in empty)
            raise DataError(
                f"{self.path} has no value at all in column {quoted(empty)}; leave it out with "
                f"--set 'data.drop=[{names}]'."
            )
        means: NDArray[np.float64] = self.sums / (self.rows - self.counts)
        return means

    def _counted(self) -> str:
        pairs = [(f, c) for f, c in zip(self.features, self.counts, strict=True) if c]
        shown = ", ".join(f"column '{f}' ({c})" for f, c in pairs[:20])
        return shown + (f" and {len(pairs) - 20} more columns" if len(pairs) > 20 else "")


def matrix(columns: Sequence[Any], rows: int, dtype: np.dtype[Any]) -> Rows:
    """Arrow columns side by side, nulls as NaN: (rows, d)."""
    out = np.empty((rows, len(columns)), dtype)
    for j, column in enumerate(columns):
        out[:, j] = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return out


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Every column gets a name of its own: an empty one its place, a repeated one a count."""
    out: list[str] = []
    for i, name in enumerate(n.strip() for n in names):
        name, base, k = name or f"column{i + 1}", name or f"column{i + 1}", 1
        while name in out:
            k += 1
            name = f"{base}_{k}"
        out.append(name)
    return tuple(out)


def quoted(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{n}'" for n in names[:most]) + more


def plural(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
