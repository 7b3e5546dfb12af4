"""MATLAB files, in which the face data sets came: Frey, Olivetti, Toronto."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from trainer.data.dataset import Found
from trainer.data.io_errors import check_numbers, check_shape
from trainer.errors import DataError, one_line

# what SciPy lets out when the bytes make no sense
_DAMAGED = (ValueError, TypeError, KeyError, IndexError, EOFError, zlib.error, OverflowError,
            scipy.io.matlab.MatReadError)  # fmt: skip


def read_mat(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        start = file.read(10)
    if start == b"MATLAB 7.3":
        raise DataError(f"{path} is a MATLAB 7.3 file; save it again with save(..., '-v7').")
    try:
        variables: dict[str, Any] = scipy.io.loadmat(str(path))
    except _DAMAGED as error:
        raise DataError(f"{path} is not a readable .mat file ({one_line(error)}).") from error
    return {k: v for k, v in variables.items() if not k.startswith("__")}


def variable(path: Path, variables: dict[str, Any], name: str) -> NDArray[Any]:
    if name not in variables:
        there = ", ".join(variables) or "none"
        raise DataError(f"{path} has no variable '{name}'; it has {there}.")
    array = np.asarray(variables[name])
    check_numbers(array.dtype, f"Variable '{name}' of {path}")
    check_shape(array.shape, f"Variable '{name}' of {path}")
    return array


def read_faces(path: Path, name: str) -> Found:
    """One face a column, as Roweis published them."""
    faces = np.ascontiguousarray(variable(path, read_mat(path), name).T)  # (n, d)
    return Found((path,), faces.shape[1], faces.dtype, lambda: iter([faces]))
