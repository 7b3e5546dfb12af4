"""The two values every reader ends in: what it found, and the data set made of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.known_laws import Truth
from trainer.data.source import Index, NpySource, Rows, Source

Image = tuple[int, ...]  # (H, W) or (H, W, C)


@dataclass(frozen=True)
class Found:
    """What a reader found at a path; no row is read until `blocks` is called."""

    paths: tuple[Path, ...]  # every file it rests on
    dims: int
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Rows]]  # all rows, in order
    features: tuple[str, ...] | None = None
    image: Image | None = None
    labels: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()
    direct: NpySource | None = None  # set where rows can be picked from the file as it is


@dataclass(frozen=True)
class Dataset:
    name: str
    source: Source
    features: tuple[str, ...] | None
    image: Image | None
    labels: NDArray[np.int64] | None
    truth: Truth | None
    fingerprint: str
    notes: tuple[str, ...]  # sentences worth telling the user
    held_out: Index | None = None  # rows the data set itself sets apart for validation

    @property
    def rows(self) -> int:
        return self.source.rows

    @property
    def dims(self) -> int:
        return self.source.dims

    def feature(self, index: int) -> str:
        """How a sentence names one of the inputs."""
        if self.features is not None:
            return f"column '{self.features[index]}'"
        if self.image is None:
            return f"column {index}"
        place = np.unravel_index(index, self.image)
        return f"pixel ({', '.join(str(int(i)) for i in place)})"


def image_shape(shape: tuple[int, ...]) -> tuple[Image | None, tuple[str, ...]]:
    """The picture behind one row's shape, and what to say where there is none."""
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
    return None, (f"Rows of shape {shape} were flattened; pictures are (N, H, W) or (N, H, W, C).",)
