"""A data set: its options (the [data] table of a recipe), its rows and its fingerprint.

A reader returns `RawData`, which describes a file without reading its rows. `readers.load` turns it
into a `Dataset`, whose rows are in memory or in one .npy file.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.sources import Index, NpySource, Rows, Source, block_rows, blocks
from trainer.data.synthetic import KnownLaw
from trainer.errors import RecipeError

MISSING = ("refuse", "drop", "mean")
NORMALISERS = ("auto", "none", "unit", "standard")

_SAMPLES = 64  # blocks of a large data set that are hashed
_SAMPLE_VALUES = 2**14  # values of one such block

Image = tuple[int, ...]  # (H, W) or (H, W, C)
Labels = NDArray[np.int64]  # (n,)
Notes = tuple[str, ...]  # sentences for the user


@dataclass(frozen=True)
class DataOptions:
    """The [data] table of a recipe: which rows to learn from, and how to normalise them.

    Raises RecipeError if a value is not allowed.
    """

    source: str  # a built-in name or a path
    path: str | None = None  # the file or folder of a known data set, such as mnist
    columns: tuple[str, ...] = ()  # use only these columns of a table, in this order
    drop: tuple[str, ...] = ()  # leave out these columns of a table
    missing: str = "refuse"  # rows with missing values: refuse | drop | mean
    key: str | None = None  # name of the array in an .npz file
    image: tuple[int, ...] | None = None  # shape of the image in a flat row: (H, W) or (H, W, C)
    rows: int | None = None  # files: read only the first rows; synthetic data: how many to draw
    fold: int | None = None  # tfd: 1 to 5
    seed: int = 0  # of synthetic data
    holdout: float | int = 0.1  # fraction (below 1) or number of rows kept for validation
    memory_limit: int = 512 * 2**20  # bytes; larger data is read from disk in blocks
    normalise: str = "auto"  # auto | none | unit | standard

    def __post_init__(self) -> None:
        _check_choice("missing", self.missing, MISSING)
        _check_choice("normalise", self.normalise, NORMALISERS)
        if self.rows is not None and self.rows < 2:
            raise RecipeError(f"`data.rows` must be at least 2; got {self.rows}.")
        if self.memory_limit < 1:
            raise RecipeError(
                f"`data.memory_limit` is a number of bytes, at least 1; got {self.memory_limit}."
            )
        if self.seed < 0:
            raise RecipeError(f"`data.seed` must be 0 or more; got {self.seed}.")
        if self.image is not None and (len(self.image) not in (2, 3) or min(self.image) < 1):
            raise RecipeError(f"`data.image` must be [H, W] or [H, W, C]; got {list(self.image)}.")
        is_count = isinstance(self.holdout, int)
        if self.holdout < 1 if is_count else not 0 < self.holdout < 1:
            raise RecipeError(
                "`data.holdout` must be a fraction between 0 and 1, such as 0.1, or a whole "
                f"number of rows, such as 500; got {self.holdout}."
            )


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RecipeError(f"`data.{name}` must be one of {', '.join(allowed)}; got {value!r}.")


@dataclass(frozen=True)
class RawData:
    """What a reader knows about a file. No row is read before `blocks` is called."""

    paths: tuple[Path, ...]  # all files that hold the rows
    dims: int  # columns of a row
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Rows]]  # all rows in order; each call starts again
    features: tuple[str, ...] | None = None  # column names of a table
    image: Image | None = None
    labels: Labels | None = None
    notes: Notes = ()
    direct: NpySource | None = None  # set if rows can be read from the file at any position


@dataclass(frozen=True)
class Dataset:
    """Rows of numbers with all that is known about them."""

    name: str
    source: Source
    features: tuple[str, ...] | None  # column names of a table
    image: Image | None
    labels: Labels | None
    law: KnownLaw | None  # the distribution that synthetic rows were drawn from
    fingerprint: str
    notes: Notes
    held_out: Index | None = None  # the validation rows, if the data set defines them itself

    @property
    def rows(self) -> int:
        return self.source.rows

    @property
    def dims(self) -> int:
        return self.source.dims

    def name_feature(self, index: int) -> str:
        """Return how a sentence names input `index`: by column name, number or pixel."""
        if self.features is not None:
            return f"column '{self.features[index]}'"
        if self.image is None:
            return f"column {index}"
        position = np.unravel_index(index, self.image)
        return f"pixel ({', '.join(str(int(i)) for i in position)})"


def compute_fingerprint(source: Source, limit: int) -> str:
    """Return a hash of the rows, so that a run can recognise its data.

    Data of up to `limit` bytes is hashed completely ("sha256:..."). For larger data the shape,
    the type and 64 evenly spaced blocks are hashed ("sha256-sampled:..."), because reading
    100 GB a second time would take too long.
    """
    is_complete = source.rows * source.dims * source.dtype.itemsize <= limit
    digest = hashlib.sha256(f"{source.rows} {source.dims} {source.dtype.str}".encode())
    pieces = (block for _, block in blocks(source)) if is_complete else _sample_blocks(source)
    for block in pieces:
        digest.update(np.ascontiguousarray(block).data)
    return f"{'sha256' if is_complete else 'sha256-sampled'}:{digest.hexdigest()}"


def _sample_blocks(source: Source) -> Iterator[Rows]:
    """Yield evenly spaced blocks, including the first and the last rows."""
    step = min(source.rows, block_rows(source.dims, _SAMPLE_VALUES))
    for start in np.linspace(0, source.rows - step, _SAMPLES).astype(np.int64).tolist():
        yield source.read(start, start + step)


def find_image_shape(shape: tuple[int, ...]) -> tuple[Image | None, Notes]:
    """Return the image shape of a row of this shape, or None and a note if it is no image."""
    if len(shape) == 2:
        return shape, ()
    if len(shape) == 3 and shape[2] == 1:
        return shape[:2], ()
    if len(shape) == 3 and shape[2] in (3, 4):
        return shape, ()
    if len(shape) == 3 and shape[0] == 1:
        return shape[1:], ()
    if len(shape) < 2:
        return None, ()
    note = f"Rows of shape {shape} were flattened; images have shape (N, H, W) or (N, H, W, C)."
    return None, (note,)
