"""What the readers of binary files share: one way to stream rows, one way to fail."""

import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the operating system and the decoders say into one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"There is no file or folder {error.filename or path}.") from error
    except PermissionError as error:
        raise DataError(f"{path} may not be read: permission denied.") from error
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged or cut short ({one_line(error)}).") from error
    except (MemoryError, OverflowError) as error:
        raise DataError(f"{path} has rows too long for this machine's memory.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}).") from error


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


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
