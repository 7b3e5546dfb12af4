"""NumPy's own files: .npy, read in place, and .npz, streamed out of its zip.

Headers are parsed here and never by `np.load`, so that nothing is unpickled and the size
is known before the first row is read.
"""

import math
import os
import tokenize
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from trainer.data.dataset import Found, image_shape
from trainer.data.io_errors import check_numbers, check_shape, read_exactly, stream_rows
from trainer.data.options import DataOptions
from trainer.data.source import NpySource, Rows, block_rows, blocks
from trainer.data.spool import nameless
from trainer.errors import DataError, explain_write_errors, one_line

# what NumPy lets out when a header makes no sense
_MALFORMED = (ValueError, TypeError, SyntaxError, tokenize.TokenError)

DATA_KEYS = ("x", "X", "x_train")
LABEL_KEYS = {"x": "y", "X": "Y", "x_train": "y_train"}


@dataclass(frozen=True)
class Header:
    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    offset: int

    @property
    def dims(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(path: Path, options: DataOptions) -> Found:
    source, header = open_npy(path)
    image, notes = image_shape(header.shape[1:])
    if header.column_major:
        return Found((path,), source.dims, source.dtype, lambda: _transposed(path, header),
                     image=image, notes=notes)  # fmt: skip
    return Found((path,), source.dims, source.dtype, lambda: (b for _, b in blocks(source)),
                 image=image, notes=notes, direct=source)  # fmt: skip


def open_npy(path: Path) -> tuple[NpySource, Header]:
    """Its rows are in order only where the header does not say column by column."""
    with path.open("rb") as file:
        header = _header(file, str(path))
    missing = header.offset + header.nbytes - path.stat().st_size
    if missing > 0:
        raise DataError(f"{path} is cut short: {missing} bytes are missing.")
    return NpySource(path, header.offset, header.shape[0], header.dims, header.dtype), header


def read_npz(path: Path, options: DataOptions) -> Found:
    with _archive(path) as archive:
        key = _choose(path, [n[:-4] for n in archive.namelist() if n.endswith(".npy")], options.key)
        header = _member_header(archive, path, key)
        labels, notes = _labels(archive, path, key, header.shape[0])
    image, more = image_shape(header.shape[1:])
    return Found((path,), header.dims, header.dtype.newbyteorder("="),
                 lambda: _unzipped(path, key, header),
                 image=image, labels=labels, notes=notes + more)  # fmt: skip


def _header(file: IO[bytes], where: str) -> Header:
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, column_major, dtype = read(file)
    except _MALFORMED as error:
        raise DataError(f"{where} is not a readable .npy array.") from error
    check_numbers(dtype, where)
    check_shape(shape, where)
    return Header(shape, column_major and len(shape) > 1, dtype, file.tell())


def _transposed(path: Path, header: Header, fd: int = -1) -> Iterator[Rows]:
    """Rows of a column-major file: a stretch of every column, put side by side."""
    rows, dims = header.shape[0], header.dims
    values = NpySource(path, header.offset, rows * dims, 1, header.dtype, fd)
    place = np.arange(dims).reshape(header.shape[1:], order="F").ravel()
    step = block_rows(dims)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        out = np.empty((stop - start, dims), values.dtype)
        for j, stored in enumerate(place.tolist()):
            out[:, j] = values.read(stored * rows + start, stored * rows + stop)[:, 0]
        yield out


def _choose(path: Path, names: list[str], key: str | None) -> str:
    if not names:
        raise DataError(f"{path} holds no arrays.")
    if key is not None and key not in names:
        raise DataError(f"{path} has no array '{key}'; it has {', '.join(names)}.")
    wanted = [key] if key is not None else [k for k in DATA_KEYS if k in names]
    if wanted:
        return wanted[0]
    if len(names) > 1:
        raise DataError(
            f"{path} holds the arrays {', '.join(names)}; choose one with --set data.key=NAME."
        )
    return names[0]


def _member_header(archive: zipfile.ZipFile, path: Path, key: str) -> Header:
    where = f"Array '{key}' of {path}"
    with _member(archive, path, key) as file:
        header = _header(file, where)
    if header.offset + header.nbytes > archive.getinfo(f"{key}.npy").file_size:
        raise DataError(f"{where} is cut short.")
    return header


def _archive(path: Path) -> zipfile.ZipFile:
    with _unpacking(path):
        return zipfile.ZipFile(path)


def _member(archive: zipfile.ZipFile, path: Path, key: str) -> IO[bytes]:
    with _unpacking(path):
        return archive.open(f"{key}.npy")


@contextmanager
def _unpacking(path: Path) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # encrypted, or packed by a method Python lacks
        raise DataError(f"{path} cannot be unpacked ({one_line(error)}).") from error


def _labels(
    archive: zipfile.ZipFile, path: Path, key: str, rows: int
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """The array of labels beside the data, where there is one that fits."""
    name = LABEL_KEYS.get(key, "y")
    if f"{name}.npy" not in archive.namelist() or name == key:
        return None, ()
    with _member(archive, path, name) as file:
        header = _header(file, f"Array '{name}' of {path}")
        if header.shape != (rows,) or header.dtype.kind not in "iub":
            return None, (f"Array '{name}' of {path.name} is not one whole number per row.",)
        raw = read_exactly(file, header.nbytes)
    return np.frombuffer(raw, header.dtype).astype(np.int64), ()


def _unzipped(path: Path, key: str, header: Header) -> Iterator[Rows]:
    with _archive(path) as archive, _member(archive, path, key) as file:
        if header.column_major:
            yield from _unzipped_columns(path, file, header)
        else:
            file.read(header.offset)
            yield from stream_rows(file, header.shape[0], header.dims, header.dtype)


def _unzipped_columns(path: Path, member: IO[bytes], header: Header) -> Iterator[Rows]:
    """A zip is read from front to back and cannot be jumped about in: lay the array out first."""
    with nameless() as (file, folder):
        while piece := member.read(2**24):
            with explain_write_errors(folder):
                file.write(piece)
        with explain_write_errors(folder):
            file.flush()
        yield from _transposed(path, header, os.dup(file.fileno()))
