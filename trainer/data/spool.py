"""An .npy that grows: rows are appended, the header is set right at the end.

Every failure to write is told apart from failures to read the source, which happen in the
same loop: only what is wrapped in `explain_write_errors` is the output folder's fault.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from trainer.data.source import NpySource, Rows, blocks
from trainer.errors import explain_write_errors


class Spool:
    def __init__(self, file: IO[bytes], folder: Path, dims: int, dtype: np.dtype[Any]) -> None:
        self.file, self.folder = file, folder
        self.dims, self.dtype, self.rows = dims, dtype, 0
        with explain_write_errors(folder):
            file.truncate(0)
            self.offset = self._header()

    def append(self, block: Rows) -> None:
        with explain_write_errors(self.folder):
            self.file.write(np.ascontiguousarray(block, self.dtype).data)
        self.rows += len(block)

    def finish(self, fill: Callable[[Rows], Rows] | None) -> None:
        """Rewrite what is to be filled in, set the row count, and put it all on the disk."""
        with explain_write_errors(self.folder):
            self.file.flush()
            if fill is not None:
                self._rewrite(fill)
            self._header()
            self.file.flush()
            os.fsync(self.file.fileno())

    def source(self, path: Path) -> NpySource:
        """The rows as they stand, through a descriptor of their own."""
        fd = os.dup(self.file.fileno())
        return NpySource(path, self.offset, self.rows, self.dims, self.dtype, fd)

    def _header(self) -> int:
        """NumPy pads the header so that a longer row count still fits in the same place."""
        self.file.seek(0)
        shape = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False,
                 "shape": (self.rows, self.dims)}  # fmt: skip
        npy.write_array_header_1_0(self.file, shape)
        return self.file.tell()

    def _rewrite(self, fill: Callable[[Rows], Rows]) -> None:
        width = self.dims * self.dtype.itemsize
        for start, block in blocks(self.source(self.folder)):
            self.file.seek(self.offset + start * width)
            self.file.write(np.ascontiguousarray(fill(block), self.dtype).data)
        self.file.flush()


def filler(values: NDArray[np.float64] | None) -> Callable[[Rows], Rows] | None:
    """Puts `values` (d,) in the place of NaN."""
    if values is None:
        return None
    return lambda block: np.where(np.isnan(block), values, block).astype(block.dtype)


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """A file only one run writes at a time; a killed run's lock and leftovers do not hinder."""
    with explain_write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@contextmanager
def nameless() -> Iterator[tuple[IO[bytes], Path]]:
    """A temporary file that is gone with the last descriptor, and the folder it is in."""
    folder = Path(tempfile.gettempdir())
    with explain_write_errors(folder):
        file = tempfile.TemporaryFile()  # noqa: SIM115 -- opening may fail as writing, the rest not
    with file:
        yield file, folder
