"""IDX files, the format MNIST came in: 0 0 TYPE NDIM, the sizes, then big-endian values."""

import gzip
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from trainer.data.dataset import Found, image_shape
from trainer.data.io_errors import check_shape, read_exactly, stream_rows
from trainer.data.options import DataOptions
from trainer.data.source import Rows
from trainer.errors import DataError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"([-.]idx\d?(-ubyte)?)$")


def is_idx(path: Path) -> bool:
    return bool(_NAME.search(path.name.removesuffix(".gz")))


def read_idx(path: Path, options: DataOptions) -> Found:
    with _open(path) as file:
        dtype, shape = _header(file, path)
    _check_size(path, dtype, shape)
    labels, notes = _labels(path, shape[0])
    image, more = image_shape(shape[1:])
    return Found((path,), math.prod(shape[1:]), dtype.newbyteorder("="),
                 lambda: _rows(path), image=image, labels=labels, notes=notes + more)  # fmt: skip


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _header(file: IO[bytes], path: Path) -> tuple[np.dtype[Any], tuple[int, ...]]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES:
        raise DataError(f"{path} is not an IDX file: it starts with {magic.hex() or 'nothing'}.")
    shape = struct.unpack(f">{magic[3]}I", read_exactly(file, 4 * magic[3]))
    check_shape(shape, str(path))
    return np.dtype(_TYPES[magic[2]]), shape


def _check_size(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Where the size can be known beforehand; a packed file tells while it is read."""
    wanted = 4 + 4 * len(shape) + math.prod(shape) * dtype.itemsize
    if path.suffix != ".gz" and path.stat().st_size < wanted:
        raise DataError(f"{path} is cut short: {wanted - path.stat().st_size} bytes are missing.")


def _rows(path: Path) -> Iterator[Rows]:
    with _open(path) as file:
        dtype, shape = _header(file, path)
        yield from stream_rows(file, shape[0], math.prod(shape[1:]), dtype)
        file.read(1)  # gzip compares its checksum only where the end is reached


def _labels(path: Path, rows: int) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """The file of labels beside the file of images, where there is one."""
    if "images" not in path.name:
        return None, ()
    name = path.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    beside = [p for p in (path.with_name(name), path.with_name(name + ".gz")) if p.is_file()]
    if not beside:
        return None, ()
    values = np.concatenate([block[:, 0] for block in _rows(beside[0])])
    if len(values) != rows:
        return None, (f"{beside[0].name} has {len(values)} labels for {rows} rows: left out.",)
    return values.astype(np.int64), ()
