"""Data sets known by name: what their files are called and what their rows look like."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data import matlab
from trainer.data.dataset import Found, Image
from trainer.data.options import DataOptions
from trainer.data.readers import read_file
from trainer.data.source import ArraySource, Index, Source
from trainer.errors import DataError, RecipeError

_PLACES = (Path("data"), Path("../shared/data"))
_MNIST_HELD_OUT = 10_000
_FOLDS, _TEST = 5, 3  # Toronto faces: 1 train, 2 validation, 3 test, 0 unlabelled


@dataclass(frozen=True)
class Named:
    files: tuple[str, ...]  # usual names, the likeliest first
    image: Image
    variable: str = ""  # its name in a .mat


NAMED = {
    "mnist": Named(("mnist-train.npz", "mnist.npz", "train-images-idx3-ubyte",
                    "train-images-idx3-ubyte.gz", "train-images.idx3-ubyte"), (28, 28)),
    "frey": Named(("frey-faces.npz", "frey_rawface.mat"), (28, 20), "ff"),
    "olivetti": Named(("olivetti-faces.npz", "olivettifaces.mat"), (64, 64), "faces"),
    "tfd": Named(("TFD_48x48.mat", "TFD_96x96.mat", "tfd.mat"), (48, 48), "images"),
}  # fmt: skip


def find(name: str, path: str | None) -> Path:
    """The file at `path` (or in that folder), else under its usual name in a usual place."""
    given = None if path is None else Path(path)
    if given is not None and not given.is_dir():
        return given
    places = _PLACES if given is None else (given,)
    for candidate in (place / file for place in places for file in NAMED[name].files):
        if candidate.is_file():
            return candidate
    where = " or ".join(str(p) for p in places)
    raise DataError(
        f"The data set '{name}' needs one of the files {', '.join(NAMED[name].files)}: "
        f"none is in {where}; say where it is with --data PATH."
    )


def read_named(name: str, path: Path, options: DataOptions) -> tuple[Found, Index | None]:
    """The rows, and those the data set itself sets apart."""
    if name == "tfd":
        return _toronto(path, options)
    found = _pictures(name, path, options)
    wanted = int(np.prod(NAMED[name].image))
    if found.dims != wanted:
        raise DataError(f"{path} has rows of {found.dims} values; '{name}' has {wanted}.")
    return replace(found, image=NAMED[name].image), None


def _pictures(name: str, path: Path, options: DataOptions) -> Found:
    if path.suffix == ".mat" and NAMED[name].variable:
        return matlab.read_faces(path, NAMED[name].variable)
    return read_file(path, options)


def finish(name: str, source: Source) -> tuple[Source, Index | None]:
    """What can be said or set right only once the rows are there."""
    if name == "olivetti":
        return _upright(source), None
    if name == "mnist":  # its last sixth, 10,000 of the 60,000
        n = max(1, min(_MNIST_HELD_OUT, source.rows // 6))
        return source, np.arange(source.rows - n, source.rows)
    return source, None


def _upright(source: Source) -> Source:
    """The usual files hold the pictures lying on their side. A face mirrors left to right,
    so a mean face that mirrors better top to bottom is turned."""
    faces = source.read(0, source.rows).reshape(-1, 64, 64)
    mean = faces.mean(0, dtype=np.float64)
    sideways = np.abs(mean - mean[::-1]).sum() < np.abs(mean - mean[:, ::-1]).sum()
    turned = faces.transpose(0, 2, 1) if sideways else faces
    return ArraySource(np.ascontiguousarray(turned).reshape(len(faces), -1))


def _toronto(path: Path, options: DataOptions) -> tuple[Found, Index | None]:
    if options.fold is not None and not 1 <= options.fold <= _FOLDS:
        raise RecipeError(f"data.fold is {options.fold}; the folds are 1 to {_FOLDS}.")
    variables = matlab.read_mat(path)
    images = matlab.variable(path, variables, "images")  # (N, H, W)
    if images.ndim != 3 or images.shape[1:] not in ((48, 48), (96, 96)):
        raise DataError(f"'images' of {path} is {images.shape}; (N, 48, 48) or (N, 96, 96) fits.")
    rows = np.ascontiguousarray(images).reshape(len(images), -1)
    known = "labs_ex" in variables
    labels = _per_row(path, variables, "labs_ex", len(rows))[:, 0] if known else None
    found = Found((path,), rows.shape[1], rows.dtype, lambda: iter([rows]),
                  image=images.shape[1:], labels=labels)  # fmt: skip
    return found, _fold(path, variables, options, len(rows))


def _fold(path: Path, variables: dict[str, Any], options: DataOptions, rows: int) -> Index | None:
    if options.fold is None:
        return None
    folds = _per_row(path, variables, "folds", rows)  # (N, 5)
    if folds.shape[1] != _FOLDS:
        raise DataError(f"'folds' of {path} has {folds.shape[1]} columns, not {_FOLDS}.")
    test = np.flatnonzero(folds[: options.rows, options.fold - 1] == _TEST)
    if not len(test):
        raise DataError(f"Fold {options.fold} of {path} has no test rows.")
    return test.astype(np.int64)


def _per_row(path: Path, variables: dict[str, Any], name: str, rows: int) -> NDArray[np.int64]:
    array = matlab.variable(path, variables, name)
    array = array.reshape(-1, 1) if array.size == rows else array
    if array.ndim != 2 or len(array) != rows:
        raise DataError(f"'{name}' of {path} is {array.shape}; {rows} rows were expected.")
    return array.astype(np.int64)
