"""Data sets known by name: the names of their files, their image shapes and validation rows.

Their files are not shipped. `--data PATH` or the environment variable LOCALMOMENTS_DATA says where
they are: the file itself or the folder that holds it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.arrays import get_variable, read_faces, read_mat
from trainer.data.dataset import DataOptions, Image, RawData
from trainer.data.sources import ArraySource, Index, Source
from trainer.errors import DataError, RecipeError

DATA_VARIABLE = "LOCALMOMENTS_DATA"

_MNIST_HELD_OUT = 10_000
_FOLDS = 5  # of the Toronto face data set
_TEST = 3  # in `folds`: 1 train, 2 validation, 3 test, 0 unlabelled


@dataclass(frozen=True)
class KnownSet:
    """A data set with a name of its own."""

    files: tuple[str, ...]  # usual file names, the most common first
    image: Image
    variable: str = ""  # the name of the images in a .mat file


KNOWN_SETS = {
    "mnist": KnownSet(("mnist-train.npz", "mnist.npz", "train-images-idx3-ubyte",
                       "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte"), (28, 28)),
    "frey": KnownSet(("frey-faces.npz", "frey_rawface.mat"), (28, 20), "ff"),
    "olivetti": KnownSet(("olivetti-faces.npz", "olivettifaces.mat"), (64, 64), "faces"),
    "tfd": KnownSet(("TFD_48x48.mat", "TFD_96x96.mat", "tfd.mat"), (48, 48), "images"),
}  # fmt: skip


def locate_file(name: str, path: str | None) -> Path:
    """Return the file of a known data set.

    path: the file, or a folder that holds it under one of its usual names. Without it,
    LOCALMOMENTS_DATA is used in the same way.

    Raises DataError, which names the file needed, if neither leads to one.
    """
    given = path or os.environ.get(DATA_VARIABLE)
    files = KNOWN_SETS[name].files
    needed = f"The data set '{name}' needs the file {files[0]} (or {', '.join(files[1:])})."
    if not given:
        raise DataError(f"{needed} Say where it is with --data PATH or {DATA_VARIABLE}=PATH.")
    place = Path(given).expanduser()
    if not place.is_dir():
        return place
    for file in files:
        if (place / file).is_file():
            return place / file
    raise DataError(f"{needed} The folder {place} has no such file; name another with --data PATH.")


def set_path(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Set where the data of a recipe is; `data` is its [data] table.

    A known data set keeps its name and gets `path`. Other data gets `path` as its source.
    """
    return {**data, "path" if data.get("source") in KNOWN_SETS else "source": path}


def reads_mat(name: str, path: Path) -> bool:
    """Whether `read_mat_set` reads the file, rather than the reader for its suffix."""
    return name == "tfd" or (path.suffix == ".mat" and KNOWN_SETS[name].variable != "")


def read_mat_set(name: str, path: Path, options: DataOptions) -> tuple[RawData, Index | None]:
    """Describe a known data set in a .mat file; return its validation rows too, if it has any."""
    if name == "tfd":
        return _read_toronto_faces(path, options)
    return read_faces(path, KNOWN_SETS[name].variable), None


def set_image(name: str, path: Path, raw: RawData) -> RawData:
    """Set the image shape of a known data set. Raises DataError if its rows do not fit."""
    if name == "tfd":
        return raw  # which comes in two sizes and has set its own
    image = KNOWN_SETS[name].image
    if raw.dims != np.prod(image):
        raise DataError(
            f"{path} has rows of {raw.dims} values, but '{name}' has {int(np.prod(image))}."
        )
    return replace(raw, image=image)


def finish_rows(name: str, source: Source) -> tuple[Source, Index | None]:
    """Turn Olivetti faces upright; return MNIST's validation rows, its last 10,000."""
    if name == "olivetti":
        return _turn_upright(source), None
    if name == "mnist":  # the last sixth, where only a part of the 60,000 rows is used
        n = max(1, min(_MNIST_HELD_OUT, source.rows // 6))
        return source, np.arange(source.rows - n, source.rows)
    return source, None


def _turn_upright(source: Source) -> Source:
    """Transpose the faces if they lie on their side, as in the usual files.

    If the mean face is more symmetric top to bottom than left to right, the images are rotated.
    """
    faces = source.read(0, source.rows).reshape(-1, 64, 64)
    mean = faces.mean(0, dtype=np.float64)
    is_lying = np.abs(mean - mean[::-1]).sum() < np.abs(mean - mean[:, ::-1]).sum()
    upright = faces.transpose(0, 2, 1) if is_lying else faces
    return ArraySource(np.ascontiguousarray(upright).reshape(len(faces), -1))


def _read_toronto_faces(path: Path, options: DataOptions) -> tuple[RawData, Index | None]:
    if options.fold is not None and not 1 <= options.fold <= _FOLDS:
        raise RecipeError(f"`data.fold` must be 1 to {_FOLDS}; got {options.fold}.")
    variables = read_mat(path)
    images = get_variable(path, variables, "images")  # (N, H, W)
    if images.ndim != 3 or images.shape[1:] not in ((48, 48), (96, 96)):
        raise DataError(
            f"'images' of {path} has shape {images.shape}; expected (N, 48, 48) or (N, 96, 96)."
        )
    rows = np.ascontiguousarray(images).reshape(len(images), -1)
    has_labels = "labs_ex" in variables
    labels = _get_per_row(path, variables, "labs_ex", len(rows))[:, 0] if has_labels else None
    raw = RawData((path,), rows.shape[1], rows.dtype, lambda: iter([rows]),
                  image=images.shape[1:], labels=labels)  # fmt: skip
    return raw, _find_test_rows(path, variables, options, len(rows))


def _find_test_rows(
    path: Path, variables: dict[str, Any], options: DataOptions, rows: int
) -> Index | None:
    if options.fold is None:
        return None
    folds = _get_per_row(path, variables, "folds", rows)  # (N, 5)
    if folds.shape[1] != _FOLDS:
        raise DataError(f"'folds' of {path} has {folds.shape[1]} columns; expected {_FOLDS}.")
    test = np.flatnonzero(folds[: options.rows, options.fold - 1] == _TEST)
    if not len(test):
        raise DataError(f"Fold {options.fold} of {path} has no test rows.")
    return test.astype(np.int64)


def _get_per_row(path: Path, variables: dict[str, Any], name: str, rows: int) -> NDArray[np.int64]:
    """Return a variable with one row (of one or more columns) for each row of the data."""
    array = get_variable(path, variables, name)
    array = array.reshape(-1, 1) if array.size == rows else array
    if array.ndim != 2 or len(array) != rows:
        raise DataError(f"'{name}' of {path} has shape {array.shape}; expected {rows} rows.")
    return array.astype(np.int64)
