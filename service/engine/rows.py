"""Rows of a caller, held against a model: their width, and that they are within reach."""

import numpy as np

from service.core.errors import InputError
from service.core.types import FARTHEST, Doubles
from service.engine.model import Model


def check_rows(model: Model, x: Doubles, name: str = "x") -> None:
    """Refuse what the model cannot take, in a sentence; x (n, d) in the user's units."""
    check_width(model, x, name)
    check_range(model, x, name)


def check_width(model: Model, x: Doubles, name: str = "x") -> None:
    wanted, reference = model.manifest.input_dims, model.manifest.reference
    if not len(x):
        raise InputError(f"{name} has no rows.")
    if x.shape[1] != wanted:
        raise InputError(f"{name} has {x.shape[1]} columns, but {reference} takes {wanted}.")


def check_range(model: Model, x: Doubles, name: str = "x") -> None:
    units, reference = model.manifest.normaliser, model.manifest.reference
    with np.errstate(over="ignore"):
        near = np.abs(x - units.shift) <= FARTHEST * units.scale
    if not near.all():
        i, j = np.argwhere(~near)[0]
        raise InputError(f"{name}[{i}][{j}] is {x[i, j]:g}, which is too far from all that "
                         f"{reference} was made for.")  # fmt: skip
