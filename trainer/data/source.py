"""Where rows come from: an array in memory, or an .npy on disk read a piece at a time.

Reads go through pread into fresh buffers and not through a memory map: pages of a map
that were touched count as resident memory, and a 6 GB file must train under 2 GB.
"""

import os
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.errors import DataError

Rows = NDArray[Any]  # (n, d) in the data's own dtype
Index = NDArray[np.int64]

BLOCK_VALUES = 2**22  # values of one block: 32 MB once they are float64


class Source(Protocol):
    """Rows of numbers that can be read in order or picked out."""

    @property
    def rows(self) -> int: ...

    @property
    def dims(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self, start: int, stop: int) -> Rows: ...  # (stop - start, d)

    def take(self, index: Index) -> Rows: ...  # (len(index), d), in the order asked for


class ArraySource:
    """Rows in memory."""

    def __init__(self, array: Rows) -> None:
        self._array = array  # (n, d)
        self.rows, self.dims = array.shape
        self.dtype = array.dtype

    def read(self, start: int, stop: int) -> Rows:
        return self._array[start:stop]

    def take(self, index: Index) -> Rows:
        return self._array[index]


class NpySource:
    """Rows of a C-ordered array of plain numbers that starts at `offset` in a file."""

    def __init__(
        self, path: Path, offset: int, rows: int, dims: int, dtype: np.dtype[Any], fd: int = -1
    ) -> None:
        self.path, self.offset = path, offset
        self.rows, self.dims = rows, dims
        self.stored = dtype  # may be big-endian; what we hand out never is
        self.dtype = dtype.newbyteorder("=")
        self._fd = fd if fd >= 0 else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    def read(self, start: int, stop: int) -> Rows:
        start, stop, _ = slice(start, stop).indices(self.rows)
        out = np.empty((max(0, stop - start), self.dims), self.stored)
        self._fill(out, start)
        return out.astype(self.dtype, copy=False)

    def take(self, index: Index) -> Rows:
        """Neighbouring rows are read together; the answer keeps the order asked for."""
        index = self._checked(index)
        order = np.argsort(index, kind="stable")
        wanted = index[order]
        rows = np.empty((len(index), self.dims), self.stored)
        for first, last in _runs(wanted):
            self._fill(rows[first:last], int(wanted[first]))
        out = np.empty((len(index), self.dims), self.dtype)
        out[order] = rows
        return out

    def _checked(self, index: Index) -> Index:
        index = np.asarray(index, np.int64)
        index = np.where(index < 0, index + self.rows, index)
        if index.size and (index.min() < 0 or index.max() >= self.rows):
            raise IndexError(f"a row outside 0..{self.rows - 1} was asked for")
        return index

    def _fill(self, out: Rows, row: int) -> None:
        """Read until `out` is full: one pread gives at most 2 GB."""
        if not out.size:
            return
        view = out.reshape(-1).view(np.uint8).data
        at = self.offset + row * self.dims * self.stored.itemsize
        while view:
            got = os.preadv(self._fd, [view], at)
            if got == 0:
                raise DataError(f"{self.path} has become shorter while it was being read.")
            view, at = view[got:], at + got


def blocks(source: Source, values: int = BLOCK_VALUES) -> Iterator[tuple[int, Rows]]:
    """(first row, rows) pieces of even size, in order."""
    step = block_rows(source.dims, values)
    for start in range(0, source.rows, step):
        yield start, source.read(start, min(start + step, source.rows))


def block_rows(dims: int, values: int = BLOCK_VALUES) -> int:
    return max(1, values // max(1, dims))


def _runs(sorted_index: Index) -> Iterator[tuple[int, int]]:
    """Stretches of `sorted_index` in which each row follows the one before."""
    if not len(sorted_index):
        return iter(())
    breaks = np.flatnonzero(np.diff(sorted_index) != 1) + 1
    edges = [0, *breaks.tolist(), len(sorted_index)]
    return pairwise(edges)
