"""What the readers of binary files share: one way to stream rows, one way to fail."""

from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from trainer.data.source import Rows, block_rows
from trainer.errors import DataError

_KINDS = {
    "O": "Python objects, which are pickled and never loaded here",
    "c": "complex numbers",
    "S": "text",
    "U": "text",
    "T": "text",
    "M": "dates",
    "m": "time spans",
    "V": "records of several fields",
}


def check_numbers(dtype: np.dtype[Any], where: str) -> None:
    if dtype.kind not in "biuf":
        raise DataError(f"{where} holds {_KINDS.get(dtype.kind, str(dtype))}, not plain numbers.")


def check_shape(shape: tuple[int, ...], where: str) -> None:
    if not shape:
        raise DataError(f"{where} is a single number, not rows of data.")
    if 0 in shape:
        raise DataError(f"{where} is empty: its shape is {shape}.")


def stream_rows(file: IO[bytes], rows: int, dims: int, dtype: np.dtype[Any]) -> Iterator[Rows]:
    """Rows that lie one after the other in an open file, in blocks of the native byte order."""
    step = block_rows(dims)
    for start in range(0, rows, step):
        n = min(step, rows - start)
        raw = read_exactly(file, n * dims * dtype.itemsize)
        block = np.frombuffer(raw, dtype).reshape(n, dims)
        yield block.astype(dtype.newbyteorder("="), copy=False)


def read_exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError(f"{size - len(data)} bytes are missing")
    return data
