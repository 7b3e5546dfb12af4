"""Rows of a caller, held against a model: their width, and that they are within reach."""

import numpy as np

from localmoments.arrays import FARTHEST, Floats, Reals
from localmoments.errors import InputError
from localmoments.model import Model


def check_rows(model: Model, x: Reals, name: str = "x") -> None:
    """Refuse what the model cannot take, in a sentence; x (n, d) in the user's units."""
    check_width(model, x, name)
    check_range(model, x, name)


def check_width(model: Model, x: Reals, name: str = "x") -> None:
    wanted, reference = model.manifest.input_dims, model.manifest.reference
    if not len(x):
        raise InputError(f"{name} has no rows.")
    if x.shape[1] != wanted:
        raise InputError(f"{name} has {x.shape[1]} columns, but {reference} takes {wanted}.")


def surely_near(z: Floats) -> bool:
    """Whether `check_range` would pass, by one number a row, in the model's units; (n, d).

    Rows that pass have no entry beyond the bound; those that do not may still be good.
    """
    return bool(np.vecdot(z, z).max() < (1 - 1e-5) * FARTHEST**2)


def check_range(model: Model, x: Reals, name: str = "x", first: int = 0) -> None:
    """`first` is the number of x's first row among the caller's."""
    units, reference = model.manifest.normaliser, model.manifest.reference
    low, high = units.within(FARTHEST)
    if low <= x.min() and x.max() <= high:
        return
    with np.errstate(over="ignore"):
        near = np.abs(x - units.shift) <= FARTHEST * units.scale
    if not near.all():
        i, j = np.argwhere(~near)[0]
        raise InputError(f"{name}[{first + i}][{j}] is {x[i, j]:g}, which is too far from all that "
                         f"{reference} was made for.")  # fmt: skip
