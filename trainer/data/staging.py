"""Bring rows to a place where training can read them in any order: memory, or one .npy file.

Rows are collected in memory until they exceed `memory_limit`. Then they are written to an .npy file
that grows. The complete file gets its final name by a rename, so an incomplete file is never read.
The name is a hash of the source's files and of the options, so the copy of a source that has
changed is not used.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from trainer.data.arrays import open_npy
from trainer.data.dataset import DataOptions, Notes, RawData
from trainer.data.sources import ArraySource, NpySource, Rows, Source, blocks, open_temporary
from trainer.data.tables import MissingValues
from trainer.errors import DataError, explain_write_errors


@dataclass(frozen=True)
class _Pass:
    """One pass over the rows: the blocks in memory, the rest, and the missing values so far."""

    raw: RawData
    collected: list[Rows]
    rest: Iterator[Rows]
    missing: MissingValues


def gather_rows(raw: RawData, options: DataOptions, staging: Path | None) -> tuple[Source, Notes]:
    """Read all rows of `raw` into memory or, beyond `options.memory_limit` bytes, an .npy file.

    staging: the folder of that file; None for a temporary file.

    Returns the source and notes on missing values. Raises DataError if the rows cannot be read,
    and RunFolderError if the file cannot be written.
    """
    if raw.direct is not None:
        return _use_npy(raw.direct, options), ()
    target = None if staging is None else staging / f"{_name_copy(raw, options)}.npy"
    if target is not None and target.is_file():
        return _open_copy(target)
    missing = MissingValues(raw.paths[0], raw.features or (), options.missing)
    run = _Pass(raw, [], _stream_rows(raw, options, missing), missing)
    if _collect(run, options.memory_limit):
        return _join_in_memory(run)
    return _write_temporary(run) if target is None else _write_copy(run, target)


def _use_npy(source: NpySource, options: DataOptions) -> Source:
    """Return the rows of an .npy file, which needs no copy."""
    n = min(source.rows, options.rows or source.rows)
    if n * source.dims * source.dtype.itemsize <= options.memory_limit:
        return ArraySource(source.read(0, n))
    return NpySource(source.path, source.offset, n, source.dims, source.stored_dtype)


def _stream_rows(raw: RawData, options: DataOptions, missing: MissingValues) -> Iterator[Rows]:
    """Yield the first `options.rows` rows; from tables, drop rows with missing values if told."""
    left = options.rows
    for block in raw.blocks():
        block = block[:left]
        yield missing.filter_block(block) if raw.features is not None else block
        left = None if left is None else left - len(block)
        if left == 0:
            return


def _collect(run: _Pass, limit: int) -> bool:
    """Read blocks into memory until the end (True) or until they exceed `limit` bytes (False)."""
    size = 0
    for block in run.rest:
        run.collected.append(block)
        size += block.nbytes
        if size > limit:
            return False
    return True


def _join_in_memory(run: _Pass) -> tuple[Source, Notes]:
    means, notes = run.missing.finish()
    empty = np.empty((0, run.raw.dims), run.raw.dtype)
    return ArraySource(_fill_missing(np.concatenate([empty, *run.collected]), means)), notes


def _write_temporary(run: _Pass) -> tuple[Source, Notes]:
    with open_temporary() as (file, folder):
        writer = _NpyWriter(file, folder, run.raw.dims, run.raw.dtype)
        notes = _write_rows(run, writer)
        return writer.open_source(run.raw.paths[0]), notes


def _write_copy(run: _Pass, target: Path) -> tuple[Source, Notes]:
    part = target.with_suffix(".part")
    with _open_locked(part) as file:
        if not target.is_file():  # else another run has written it while this one waited
            writer = _NpyWriter(file, target.parent, run.raw.dims, run.raw.dtype)
            _publish_copy(run, writer, part, target)
    return _open_copy(target)


def _publish_copy(run: _Pass, writer: "_NpyWriter", part: Path, target: Path) -> None:
    try:
        notes = _write_rows(run, writer)
        with explain_write_errors(target.parent):
            # The notes come first: a copy that exists has its notes.
            target.with_suffix(".json").write_text(json.dumps({"notes": notes}))
            part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _write_rows(run: _Pass, writer: "_NpyWriter") -> Notes:
    while run.collected:  # frees each block once it is written
        writer.append(run.collected.pop(0))
    for block in run.rest:
        writer.append(block)
    means, notes = run.missing.finish()
    writer.finish(means)
    return notes


def _open_copy(target: Path) -> tuple[Source, Notes]:
    source, _ = open_npy(target)
    try:
        notes = json.loads(target.with_suffix(".json").read_text())["notes"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{target.with_suffix('.json')} is missing or damaged. Delete {target} and run again."
        ) from error
    return source, tuple(notes)


def _name_copy(raw: RawData, options: DataOptions) -> str:
    """Hash the files (name, size, time) and all options that change the rows."""
    stats = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in raw.paths]
    shaping = [raw.features, raw.image, str(raw.dtype), options.missing, options.key,
               options.rows]  # fmt: skip
    text = json.dumps([stats, shaping])
    return "rows-" + hashlib.sha256(text.encode()).hexdigest()[:24]


def _fill_missing(block: Rows, means: NDArray[np.float64] | None) -> Rows:
    """Replace NaN by `means` (d,), if there are any."""
    if means is None:
        return block
    return np.where(np.isnan(block), means, block).astype(block.dtype)


class _NpyWriter:
    """Writes an .npy file row by row; the header gets the true number of rows at the end.

    Reading the source and writing the file alternate, and both may fail. So only the writes are
    wrapped in `explain_write_errors`.
    """

    def __init__(self, file: IO[bytes], folder: Path, dims: int, dtype: np.dtype[Any]) -> None:
        self.file, self.folder = file, folder
        self.dims, self.dtype, self.rows = dims, dtype, 0
        with explain_write_errors(folder):
            file.truncate(0)
            self.offset = self._write_header()

    def append(self, block: Rows) -> None:
        with explain_write_errors(self.folder):
            self.file.write(np.ascontiguousarray(block, self.dtype).data)
        self.rows += len(block)

    def finish(self, means: NDArray[np.float64] | None) -> None:
        """Fill in missing values, write the number of rows, and sync the file to disk."""
        with explain_write_errors(self.folder):
            self.file.flush()
            if means is not None:
                self._rewrite(means)
            self._write_header()
            self.file.flush()
            os.fsync(self.file.fileno())

    def open_source(self, path: Path) -> NpySource:
        """Return the rows written so far, read through a descriptor of their own.

        path: the name of the rows in error sentences.
        """
        fd = os.dup(self.file.fileno())
        return NpySource(path, self.offset, self.rows, self.dims, self.dtype, fd)

    def _write_header(self) -> int:
        """Write the header and return its length, which does not depend on the number of rows.

        NumPy pads the header so that a longer number still fits.
        """
        self.file.seek(0)
        header = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False,
                  "shape": (self.rows, self.dims)}  # fmt: skip
        npy.write_array_header_1_0(self.file, header)
        return self.file.tell()

    def _rewrite(self, means: NDArray[np.float64]) -> None:
        width = self.dims * self.dtype.itemsize
        for start, block in blocks(self.open_source(self.folder)):
            self.file.seek(self.offset + start * width)
            self.file.write(np.ascontiguousarray(_fill_missing(block, means), self.dtype).data)
        self.file.flush()


@contextmanager
def _open_locked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for one writer at a time. The lock of a killed process ends with the process."""
    with explain_write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
