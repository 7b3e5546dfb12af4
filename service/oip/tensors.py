"""Tensors to arrays and back: their numbers in JSON, flat or nested, or as little-endian bytes.

Every real type is read. What a model takes is made of it: widened exactly where it takes float64,
rounded where it takes float32, and never rescaled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from localmoments.errors import InputError
from service.http.encodings import NUMBERS
from service.oip.schemas import REALS, InputTensor

Array = NDArray[Any]

_CODES = ("<f2", "<f4", "<f8", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8")
DTYPES = {name: np.dtype(code) for name, code in zip(REALS, _CODES, strict=True)}
DATATYPES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Spec:
    """A tensor at the border of something that can be asked; a name is an axis of any size."""

    name: str
    datatype: str
    shape: tuple[str | int, ...]
    optional: bool = False
    most: float = math.inf  # what its numbers may be, above and below

    @property
    def sizes(self) -> list[int]:
        """In the protocol's words."""
        return [size if isinstance(size, int) else -1 for size in self.shape]


def _dtype(tensor: InputTensor) -> np.dtype[Any]:
    if tensor.datatype not in DTYPES:
        raise InputError(
            f"{tensor.name} is of datatype {tensor.datatype[:20]!r}, but numbers are wanted: one "
            f"of {', '.join(DTYPES)}."
        )
    return DTYPES[tensor.datatype]


def of_bytes(tensor: InputTensor, raw: memoryview) -> Array:
    dtype = _dtype(tensor)
    wanted = math.prod(tensor.shape) * dtype.itemsize
    if len(raw) != wanted:
        raise InputError(
            f"{tensor.name} has {len(raw)} bytes, but {tensor.datatype} of shape {tensor.shape} "
            f"takes {wanted}."
        )
    return np.frombuffer(raw, dtype).reshape(tensor.shape)


def of_json(tensor: InputTensor, data: object) -> Array:
    numbers = _flat(tensor.name, data, tensor.shape)
    dtype = _dtype(tensor)
    if not set(map(type, numbers)) <= (NUMBERS if dtype.kind == "f" else {int}):
        raise InputError(f"{tensor.name} holds something that is not a number of its datatype.")
    try:
        with np.errstate(over="ignore"):  # to infinity, which is refused with its place
            return np.array(numbers, dtype).reshape(tensor.shape)
    except OverflowError:
        raise InputError(f"{tensor.name} holds a number beyond {tensor.datatype}.") from None


def _flat(name: str, data: object, shape: Sequence[int]) -> list[Any]:
    """Numbers row by row; where they are nested, as the shape says."""
    parts: list[Any] = [data]
    for size in shape:
        if not all(isinstance(part, list) for part in parts):
            break
        nested = any(isinstance(entry, list) for part in parts for entry in part[:1])
        if nested and any(len(part) != size for part in parts):
            raise InputError(f"{name} is nested otherwise than its shape {list(shape)} says.")
        parts = list(chain.from_iterable(parts))
        if not nested:
            break
    if not isinstance(data, list) or len(parts) != math.prod(shape):
        raise InputError(f"{name} has not as many numbers as its shape {list(shape)} says.")
    return parts


def fitted(spec: Spec, array: Array, axes: dict[str, int]) -> Array:
    """The array as the model takes it; `axes` are the sizes that named axes have so far.

    Where nothing bounds the numbers they are in the user's units, and are read as `.npy` bodies
    are: float32 as it is, anything else as float64.
    """
    _check_shape(spec, array, axes)
    narrow = array.dtype == np.float32 or spec.most < math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is refused below
        array = np.ascontiguousarray(array, np.float32 if narrow else np.float64)
        sound = np.abs(array) <= spec.most if spec.most < math.inf else np.isfinite(array)
    if not sound.all():
        _refuse(spec, array, np.argwhere(~sound)[0])
    return array


def _check_shape(spec: Spec, array: Array, axes: dict[str, int]) -> None:
    wanted = [axes.get(size, size) if isinstance(size, str) else size for size in spec.shape]
    pairs = list(zip(wanted, array.shape, strict=False))
    if len(wanted) != array.ndim or any(
        size != found if isinstance(size, int) else found == 0 for size, found in pairs
    ):
        said = ", ".join(map(str, wanted))
        raise InputError(f"{spec.name} has shape {list(array.shape)}, but [{said}] is wanted.")
    axes |= {size: found for size, found in pairs if isinstance(size, str)}


def _refuse(spec: Spec, array: Array, place: Sequence[int]) -> None:
    value, where = array[tuple(place)], "".join(f"[{i}]" for i in place)
    if np.isfinite(value):
        raise InputError(f"{spec.name}{where} is {value:g}, but {spec.most:g} is the most.")
    raise InputError(f"{spec.name}{where} is {value}, not a finite number.")


def json_of(array: Array) -> orjson.Fragment:
    """Flat, row by row, because orjson holds the GIL while it writes."""
    rows = array.reshape(len(array) if array.size and array.ndim > 1 else 1, -1)
    texts = [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for row in rows]
    return orjson.Fragment(b"[%s]" % b",".join(texts))
