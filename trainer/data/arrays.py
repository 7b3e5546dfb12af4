"""Array files: .npy read in place, .npz streamed out of its zip archive, and MATLAB's .mat.

The headers of .npy arrays are parsed here, not by `np.load`. So nothing is unpickled, and the size
is known before the first row is read.
"""

import math
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from trainer.data.dataset import DataOptions, Labels, Notes, RawData, find_image_shape
from trainer.data.sources import (
    NpySource,
    Rows,
    block_rows,
    blocks,
    check_array,
    open_temporary,
    read_exactly,
    stream_rows,
)
from trainer.errors import DataError, explain_write_errors, one_line

# Exceptions of NumPy on a malformed header, and of SciPy on a damaged .mat file.
_BAD_HEADER = (ValueError, TypeError, SyntaxError, tokenize.TokenError)
_BAD_MAT = (ValueError, TypeError, KeyError, IndexError, EOFError, zlib.error, OverflowError)

_DATA_KEYS = ("x", "X", "x_train")  # the array of an .npz file that holds the rows
_LABEL_KEYS = {"x": "y", "X": "Y", "x_train": "y_train"}


@dataclass(frozen=True)
class Header:
    """The header of an .npy array."""

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    offset: int  # of the first value, in bytes

    @property
    def dims(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(path: Path, options: DataOptions) -> RawData:
    """Describe an .npy file; rows of a C-ordered one can be read at any position."""
    source, header = open_npy(path)
    image, notes = find_image_shape(header.shape[1:])
    if header.column_major:
        return RawData((path,), source.dims, source.dtype, lambda: _transpose(path, header),
                       image=image, notes=notes)  # fmt: skip
    return RawData((path,), source.dims, source.dtype, lambda: (b for _, b in blocks(source)),
                   image=image, notes=notes, direct=source)  # fmt: skip


def open_npy(path: Path) -> tuple[NpySource, Header]:
    """Open an .npy file. The source returns true rows only if the header is not column-major.

    Raises DataError if the file is cut short or does not hold rows of numbers.
    """
    with path.open("rb") as file:
        header = _read_header(file, str(path))
    missing = header.offset + header.nbytes - path.stat().st_size
    if missing > 0:
        raise DataError(f"{path} is cut short: {missing} bytes are missing.")
    return NpySource(path, header.offset, header.shape[0], header.dims, header.dtype), header


def read_npz(path: Path, options: DataOptions) -> RawData:
    """Describe the array of an .npz file named by `options.key`, else x, X, x_train or the only
    one. Integers in y, Y or y_train are its labels."""
    with _open_archive(path) as archive:
        names = [n[:-4] for n in archive.namelist() if n.endswith(".npy")]
        key = _choose_key(path, names, options.key)
        header = _read_member_header(archive, path, key)
        labels, notes = _read_labels(archive, path, key, header.shape[0])
    image, image_notes = find_image_shape(header.shape[1:])
    return RawData((path,), header.dims, header.dtype.newbyteorder("="),
                   lambda: _stream_member(path, key, header),
                   image=image, labels=labels, notes=notes + image_notes)  # fmt: skip


def _read_header(file: IO[bytes], where: str) -> Header:
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, column_major, dtype = read(file)
    except _BAD_HEADER as error:
        raise DataError(f"{where} is not a readable .npy array.") from error
    check_array(dtype, shape, where)
    return Header(shape, column_major and len(shape) > 1, dtype, file.tell())


def _transpose(path: Path, header: Header, fd: int = -1) -> Iterator[Rows]:
    """Yield the rows of a column-major array: for each block, read a piece of every column."""
    rows, dims = header.shape[0], header.dims
    values = NpySource(path, header.offset, rows * dims, 1, header.dtype, fd)
    # A row of shape (a, b) is stored with its first axis fastest; we want the last fastest.
    stored_order = np.arange(dims).reshape(header.shape[1:], order="F").ravel()
    step = block_rows(dims)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        out = np.empty((stop - start, dims), values.dtype)
        for j, column in enumerate(stored_order.tolist()):
            out[:, j] = values.read(column * rows + start, column * rows + stop)[:, 0]
        yield out


def _choose_key(path: Path, names: list[str], key: str | None) -> str:
    if not names:
        raise DataError(f"{path} contains no arrays.")
    if key is not None and key not in names:
        raise DataError(f"{path} has no array '{key}'; it has {', '.join(names)}.")
    candidates = [key] if key is not None else [k for k in _DATA_KEYS if k in names]
    if candidates:
        return candidates[0]
    if len(names) > 1:
        raise DataError(
            f"{path} contains the arrays {', '.join(names)}. Choose one with --set data.key=NAME."
        )
    return names[0]


def _read_member_header(archive: zipfile.ZipFile, path: Path, key: str) -> Header:
    where = f"Array '{key}' of {path}"
    with _open_member(archive, path, key) as file:
        header = _read_header(file, where)
    if header.offset + header.nbytes > archive.getinfo(f"{key}.npy").file_size:
        raise DataError(f"{where} is cut short.")
    return header


def _open_archive(path: Path) -> zipfile.ZipFile:
    with _explain_zip_errors(path):
        return zipfile.ZipFile(path)


def _open_member(archive: zipfile.ZipFile, path: Path, key: str) -> IO[bytes]:
    with _explain_zip_errors(path):
        return archive.open(f"{key}.npy")


@contextmanager
def _explain_zip_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # encrypted, or compressed by a method that Python lacks
        raise DataError(f"{path} cannot be unpacked ({one_line(error)}).") from error


def _read_labels(
    archive: zipfile.ZipFile, path: Path, key: str, rows: int
) -> tuple[Labels | None, Notes]:
    """Return the labels that belong to the array `key`, if there are any that fit."""
    name = _LABEL_KEYS.get(key, "y")
    if f"{name}.npy" not in archive.namelist() or name == key:
        return None, ()
    with _open_member(archive, path, name) as file:
        header = _read_header(file, f"Array '{name}' of {path}")
        if header.shape != (rows,) or header.dtype.kind not in "iub":
            note = f"Array '{name}' of {path.name} is ignored: labels are one integer per row."
            return None, (note,)
        raw = read_exactly(file, header.nbytes)
    return np.frombuffer(raw, header.dtype).astype(np.int64), ()


def _stream_member(path: Path, key: str, header: Header) -> Iterator[Rows]:
    with _open_archive(path) as archive, _open_member(archive, path, key) as file:
        if header.column_major:
            yield from _stream_column_major(path, file, header)
        else:
            file.read(header.offset)
            yield from stream_rows(file, header.shape[0], header.dims, header.dtype)


def _stream_column_major(path: Path, member: IO[bytes], header: Header) -> Iterator[Rows]:
    """Unpack the array first: a compressed member can only be read from front to back."""
    with open_temporary() as (file, folder):
        while piece := member.read(2**24):
            with explain_write_errors(folder):
                file.write(piece)
        with explain_write_errors(folder):
            file.flush()
        yield from _transpose(path, header, os.dup(file.fileno()))


def read_mat(path: Path) -> dict[str, Any]:
    """Return the variables of a MATLAB file. Raises DataError if it is damaged or version 7.3."""
    import scipy.io  # takes a second, and only these files need it

    with path.open("rb") as file:
        start = file.read(10)
    if start == b"MATLAB 7.3":
        raise DataError(f"{path} is a MATLAB 7.3 file. Save it again with save(..., '-v7').")
    try:
        variables: dict[str, Any] = scipy.io.loadmat(str(path))
    except (*_BAD_MAT, scipy.io.matlab.MatReadError) as error:
        raise DataError(f"{path} is not a readable .mat file ({one_line(error)}).") from error
    return {k: v for k, v in variables.items() if not k.startswith("__")}


def get_variable(path: Path, variables: dict[str, Any], name: str) -> NDArray[Any]:
    """Return a variable of a MATLAB file as an array. Raises DataError if there is none."""
    if name not in variables:
        raise DataError(
            f"{path} has no variable '{name}'; it has {', '.join(variables) or 'none'}."
        )
    array = np.asarray(variables[name])
    check_array(array.dtype, array.shape, f"Variable '{name}' of {path}")
    return array


def read_faces(path: Path, name: str) -> RawData:
    """Describe a MATLAB matrix with one face per column, as Roweis published them."""
    faces = np.ascontiguousarray(get_variable(path, read_mat(path), name).T)  # (n, d)
    return RawData((path,), faces.shape[1], faces.dtype, lambda: iter([faces]))
