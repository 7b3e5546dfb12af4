"""Bring rows to where training can pick them: into memory, or into one .npy on disk.

Rows are gathered in memory until they outgrow `memory_limit`, and then spill into an .npy
that grows. The finished file appears by a rename, under a name made from what the source
looked like, so a half file is never read and a changed source is never taken for the old.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainer.data.arrays import open_npy
from trainer.data.dataset import Found
from trainer.data.options import DataOptions
from trainer.data.source import ArraySource, NpySource, Rows, Source
from trainer.data.spool import Spool, filler, locked, nameless
from trainer.data.tables import Gaps
from trainer.errors import DataError, explain_write_errors

Notes = tuple[str, ...]


@dataclass(frozen=True)
class _Flow:
    """Rows on their way: those already read, those to come, and the gaps seen in them."""

    found: Found
    held: list[Rows]
    rest: Iterator[Rows]
    gaps: Gaps


def gather(found: Found, options: DataOptions, staging: Path | None) -> tuple[Source, Notes]:
    """All rows of `found` where they can be picked, and what the pass over them showed."""
    if found.direct is not None:
        return _direct(found.direct, options), ()
    target = None if staging is None else staging / f"{_stem(found, options)}.npy"
    if target is not None and target.is_file():
        return _staged(target)
    gaps = Gaps(found.paths[0], found.features or (), options.missing)
    flow = _Flow(found, [], _admitted(found, options, gaps), gaps)
    if _fits(flow, options.memory_limit):
        return _in_memory(flow)
    return _nameless(flow) if target is None else _stage(flow, target)


def _direct(source: NpySource, options: DataOptions) -> Source:
    n = min(source.rows, options.rows or source.rows)
    small = n * source.dims * source.dtype.itemsize <= options.memory_limit
    if small:
        return ArraySource(source.read(0, n))
    return NpySource(source.path, source.offset, n, source.dims, source.stored)


def _admitted(found: Found, options: DataOptions, gaps: Gaps) -> Iterator[Rows]:
    left = options.rows
    for block in found.blocks():
        block = block[:left]
        yield gaps.admit(block) if found.features is not None else block
        left = None if left is None else left - len(block)
        if left == 0:
            return


def _fits(flow: _Flow, limit: int) -> bool:
    """Read until the end or the limit; what was read stays in `held`."""
    size = 0
    for block in flow.rest:
        flow.held.append(block)
        size += block.nbytes
        if size > limit:
            return False
    return True


def _in_memory(flow: _Flow) -> tuple[Source, Notes]:
    values, notes = flow.gaps.settle()
    fill = filler(values)
    empty = np.empty((0, flow.found.dims), flow.found.dtype)
    array = np.concatenate([empty, *flow.held])
    return ArraySource(array if fill is None else fill(array)), notes


def _nameless(flow: _Flow) -> tuple[Source, Notes]:
    with nameless() as (file, folder):
        spool = Spool(file, folder, flow.found.dims, flow.found.dtype)
        notes = _pour(flow, spool)
        return spool.source(flow.found.paths[0]), notes


def _stage(flow: _Flow, target: Path) -> tuple[Source, Notes]:
    part = target.with_suffix(".part")
    with locked(part) as file:
        if not target.is_file():  # else a second run made it while we waited
            spool = Spool(file, target.parent, flow.found.dims, flow.found.dtype)
            _publish(flow, spool, part, target)
    return _staged(target)


def _publish(flow: _Flow, spool: Spool, part: Path, target: Path) -> None:
    """The notes first: where the .npy is, they are."""
    try:
        notes = _pour(flow, spool)
        with explain_write_errors(target.parent):
            target.with_suffix(".json").write_text(json.dumps({"notes": notes}))
            part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _pour(flow: _Flow, spool: Spool) -> Notes:
    while flow.held:
        spool.append(flow.held.pop(0))
    for block in flow.rest:
        spool.append(block)
    values, notes = flow.gaps.settle()
    spool.finish(filler(values))
    return notes


def _staged(target: Path) -> tuple[Source, Notes]:
    source, _ = open_npy(target)
    try:
        notes = json.loads(target.with_suffix(".json").read_text())["notes"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{target} has lost its notes; delete it and run again.") from error
    return source, tuple(notes)


def _stem(found: Found, options: DataOptions) -> str:
    """Changes with the files (name, size, time) and with every option that shapes the rows."""
    stats = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in found.paths]
    shaping = [found.features, found.image, str(found.dtype), options.missing, options.key,
               options.rows]  # fmt: skip
    text = json.dumps([stats, shaping])
    return "rows-" + hashlib.sha256(text.encode()).hexdigest()[:24]
