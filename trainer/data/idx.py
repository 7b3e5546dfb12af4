"""IDX files, the format of MNIST: bytes 0 0 TYPE NDIM, the sizes, then big-endian values."""

import gzip
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from trainer.data.dataset import DataOptions, Labels, Notes, RawData, find_image_shape
from trainer.data.sources import Rows, check_array, read_exactly, stream_rows
from trainer.errors import DataError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"([-.]idx\d?(-ubyte)?)$")


def is_idx(path: Path) -> bool:
    """Whether a file name looks like that of an IDX file, such as train-images-idx3-ubyte.gz."""
    return bool(_NAME.search(path.name.removesuffix(".gz")))


def read_idx(path: Path, options: DataOptions) -> RawData:
    """Describe an IDX file; labels are read from the file of labels next to a file of images."""
    with _open(path) as file:
        dtype, shape = _read_header(file, path)
    _check_size(path, dtype, shape)
    labels, notes = _read_labels(path, shape[0])
    image, image_notes = find_image_shape(shape[1:])
    return RawData((path,), math.prod(shape[1:]), dtype.newbyteorder("="), lambda: _stream(path),
                   image=image, labels=labels, notes=notes + image_notes)  # fmt: skip


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _read_header(file: IO[bytes], path: Path) -> tuple[np.dtype[Any], tuple[int, ...]]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        raise DataError(f"{path} is not an IDX file: it starts with {magic.hex() or 'nothing'}.")
    shape = struct.unpack(f">{magic[3]}I", read_exactly(file, 4 * magic[3]))
    dtype = np.dtype(_TYPES[magic[2]])
    check_array(dtype, shape, str(path))
    return dtype, shape


def _check_size(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise DataError if an uncompressed file is cut short; gzip notices that itself."""
    size = 4 + 4 * len(shape) + math.prod(shape) * dtype.itemsize
    missing = size - path.stat().st_size
    if path.suffix != ".gz" and missing > 0:
        raise DataError(f"{path} is cut short: {missing} bytes are missing.")


def _stream(path: Path) -> Iterator[Rows]:
    with _open(path) as file:
        dtype, shape = _read_header(file, path)
        yield from stream_rows(file, shape[0], math.prod(shape[1:]), dtype)
        file.read(1)  # gzip compares its checksum only at the end of the file


def _read_labels(path: Path, rows: int) -> tuple[Labels | None, Notes]:
    if "images" not in path.name:
        return None, ()
    name = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    files = [p for p in (path.with_name(name), path.with_name(name + ".gz")) if p.is_file()]
    if not files:
        return None, ()
    values = np.concatenate([block[:, 0] for block in _stream(files[0])])
    if len(values) != rows:
        note = f"{files[0].name} is ignored: it has {len(values)} labels for {rows} rows."
        return None, (note,)
    return values.astype(np.int64), ()
