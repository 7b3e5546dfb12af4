"""A short name for the data's content, so that a run can tell it was given the same rows.

Data within the limit is hashed whole ("sha256:..."). Of larger data the shape, the type and
64 evenly spaced blocks are ("sha256-sampled:..."): reading 100 GB twice to say so would cost
more than it is worth.
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from trainer.data.source import Rows, Source, block_rows, blocks

_SAMPLES = 64
_SAMPLE_VALUES = 2**14


def fingerprint(source: Source, limit: int) -> str:
    whole = source.rows * source.dims * source.dtype.itemsize <= limit
    digest = hashlib.sha256(f"{source.rows} {source.dims} {source.dtype.str}".encode())
    for block in _all(source) if whole else _sampled(source):
        digest.update(np.ascontiguousarray(block).data)
    return f"{'sha256' if whole else 'sha256-sampled'}:{digest.hexdigest()}"


def _all(source: Source) -> Iterator[Rows]:
    return (block for _, block in blocks(source))


def _sampled(source: Source) -> Iterator[Rows]:
    """Evenly spaced, the first and the last rows among them."""
    step = min(source.rows, block_rows(source.dims, _SAMPLE_VALUES))
    for start in np.linspace(0, source.rows - step, _SAMPLES).astype(np.int64).tolist():
        yield source.read(start, start + step)
