"""Sources of rows: an array in memory, or an .npy file that is read in blocks.

Files are read with pread into new buffers. A memory map would not do: its touched pages count as
resident memory, and training on a 6 GB file must stay below 2 GB.
"""

import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.errors import DataError, explain_write_errors

Rows = NDArray[Any]  # (n, d), in the dtype of the data
Index = NDArray[np.int64]

BLOCK_VALUES = 2**22  # values of one block: 32 MB as float64

_KINDS = {
    "O": "Python objects, which are pickled and therefore not loaded",
    "c": "complex numbers",
    "S": "text",
    "U": "text",
    "T": "text",
    "M": "dates",
    "m": "time spans",
    "V": "records of several fields",
}


class Source(Protocol):
    """Rows of numbers that can be read in order or by index."""

    @property
    def rows(self) -> int: ...

    @property
    def dims(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def read(self, start: int, stop: int) -> Rows: ...  # (stop - start, d)

    def take(self, index: Index) -> Rows: ...  # (len(index), d), in the order of `index`


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
    """Rows of a C-ordered array of numbers that starts at byte `offset` of a file.

    `fd` is an open descriptor of the file, which the source then owns; without it the file is
    opened here.
    """

    def __init__(
        self, path: Path, offset: int, rows: int, dims: int, dtype: np.dtype[Any], fd: int = -1
    ) -> None:
        self.path, self.offset = path, offset
        self.rows, self.dims = rows, dims
        self.stored_dtype = dtype  # may be big-endian; returned rows have the native byte order
        self.dtype = dtype.newbyteorder("=")
        self._fd = fd if fd >= 0 else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)

    def read(self, start: int, stop: int) -> Rows:
        start, stop, _ = slice(start, stop).indices(self.rows)
        out = np.empty((max(0, stop - start), self.dims), self.stored_dtype)
        self._fill(out, start)
        return out.astype(self.dtype, copy=False)

    def take(self, index: Index) -> Rows:
        """Return the rows at `index`, in that order. Neighbouring rows are read together."""
        index = self._check_index(index)
        order = np.argsort(index, kind="stable")
        sorted_index = index[order]
        rows = np.empty((len(index), self.dims), self.stored_dtype)
        for first, last in _find_runs(sorted_index):
            self._fill(rows[first:last], int(sorted_index[first]))
        out = np.empty((len(index), self.dims), self.dtype)
        out[order] = rows
        return out

    def _check_index(self, index: Index) -> Index:
        index = np.asarray(index, np.int64)
        index = np.where(index < 0, index + self.rows, index)
        if index.size and (index.min() < 0 or index.max() >= self.rows):
            raise IndexError(f"row index out of range: rows are 0 to {self.rows - 1}")
        return index

    def _fill(self, out: Rows, row: int) -> None:
        """Read `out` from the file, starting at row `row`."""
        if not out.size:
            return
        view = out.reshape(-1).view(np.uint8).data
        at = self.offset + row * self.dims * self.stored_dtype.itemsize
        while view:  # one pread returns at most 2 GB
            count = os.preadv(self._fd, [view], at)
            if count == 0:
                raise DataError(f"{self.path} became shorter while it was being read.")
            view, at = view[count:], at + count


def blocks(source: Source, values: int = BLOCK_VALUES) -> Iterator[tuple[int, Rows]]:
    """Yield (first row, rows) in order, in blocks of about `values` values."""
    step = block_rows(source.dims, values)
    for start in range(0, source.rows, step):
        yield start, source.read(start, min(start + step, source.rows))


def block_rows(dims: int, values: int = BLOCK_VALUES) -> int:
    """Return how many rows of `dims` columns make a block of about `values` values."""
    return max(1, values // max(1, dims))


def stream_rows(file: IO[bytes], rows: int, dims: int, dtype: np.dtype[Any]) -> Iterator[Rows]:
    """Yield consecutive rows of an open file in blocks, in the native byte order.

    Raises EOFError if the file ends too early.
    """
    step = block_rows(dims)
    for start in range(0, rows, step):
        n = min(step, rows - start)
        raw = read_exactly(file, n * dims * dtype.itemsize)
        block = np.frombuffer(raw, dtype).reshape(n, dims)
        yield block.astype(dtype.newbyteorder("="), copy=False)


def read_exactly(file: IO[bytes], size: int) -> bytes:
    """Read `size` bytes. Raises EOFError if the file ends before that."""
    data = file.read(size)
    if len(data) < size:
        raise EOFError(f"{size - len(data)} bytes are missing")
    return data


@contextmanager
def open_temporary() -> Iterator[tuple[IO[bytes], Path]]:
    """Open a temporary file without a name; yield it and the folder it is in.

    The file disappears when its last descriptor is closed.
    """
    folder = Path(tempfile.gettempdir())
    with explain_write_errors(folder):
        file = tempfile.TemporaryFile()  # noqa: SIM115 -- only errors of opening are explained
    with file:
        yield file, folder


def check_array(dtype: np.dtype[Any], shape: tuple[int, ...], where: str) -> None:
    """Raise DataError unless an array of this type and shape holds rows of plain numbers."""
    if dtype.kind not in "biuf":
        raise DataError(f"{where} holds {_KINDS.get(dtype.kind, str(dtype))}, not plain numbers.")
    if not shape:
        raise DataError(f"{where} is a single number, not rows of data.")
    if 0 in shape:
        raise DataError(f"{where} is empty: its shape is {shape}.")


def _find_runs(sorted_index: Index) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each stretch in which every index is its predecessor plus 1."""
    if not len(sorted_index):
        return iter(())
    breaks = np.flatnonzero(np.diff(sorted_index) != 1) + 1
    return pairwise([0, *breaks.tolist(), len(sorted_index)])
