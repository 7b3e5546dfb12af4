"""Convert tensors of the protocol to NumPy arrays and back.

A tensor's values are either in the JSON part of a message, flat or nested, or follow it as
little-endian bytes. All real datatypes are accepted. Values are converted to the type that the
model takes, and never rescaled: a pixel of 255 stays 255.
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
from service.oip.schemas import DATATYPES, InputTensor

Array = NDArray[Any]

_CODES = ("<f2", "<f4", "<f8", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8")
DTYPES = {name: np.dtype(code) for name, code in zip(DATATYPES, _CODES, strict=True)}
DATATYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a target."""

    name: str
    datatype: str
    shape: tuple[str | int, ...]  # a string names an axis of any size, such as "batch"
    optional: bool = False
    limit: float = math.inf  # largest magnitude of a value

    @property
    def wire_shape(self) -> list[int]:
        """The shape as metadata shows it, with -1 for an axis of any size."""
        return [size if isinstance(size, int) else -1 for size in self.shape]


def parse_bytes(tensor: InputTensor, raw: memoryview) -> Array:
    """Read a tensor's values from little-endian bytes, without a copy.

    Raises InputError if the number of bytes does not match shape and datatype.
    """
    dtype = _find_dtype(tensor)
    expected = math.prod(tensor.shape) * dtype.itemsize
    if len(raw) != expected:
        raise InputError(
            f"{tensor.name} has {len(raw)} bytes, but {tensor.datatype} of shape {tensor.shape} "
            f"takes {expected}."
        )
    return np.frombuffer(raw, dtype).reshape(tensor.shape)


def parse_json(tensor: InputTensor, data: object) -> Array:
    """Read a tensor's values from a JSON list, flat or nested like the shape.

    Raises InputError for a value that is not a number of the tensor's datatype.
    """
    numbers = _flatten(tensor.name, data, tensor.shape)
    dtype = _find_dtype(tensor)
    # A set of types is cheap, and finds booleans, which NumPy would convert to 0 and 1.
    if not set(map(type, numbers)) <= (NUMBERS if dtype.kind == "f" else {int}):
        raise InputError(
            f"{tensor.name} contains a value that is not a number of its datatype, "
            f"{tensor.datatype}."
        )
    try:
        with np.errstate(over="ignore"):  # infinity is refused later, with its position
            return np.array(numbers, dtype).reshape(tensor.shape)
    except OverflowError:
        raise InputError(
            f"{tensor.name} contains a number outside the range of {tensor.datatype}."
        ) from None


def _find_dtype(tensor: InputTensor) -> np.dtype[Any]:
    if tensor.datatype not in DTYPES:
        raise InputError(
            f"{tensor.name} has datatype {tensor.datatype[:20]!r}. Supported datatypes: "
            f"{', '.join(DTYPES)}."
        )
    return DTYPES[tensor.datatype]


def _flatten(name: str, data: object, shape: Sequence[int]) -> list[Any]:
    """Return the values of a flat or nested list in row-major order."""
    parts: list[Any] = [data]
    for size in shape:
        if not all(isinstance(part, list) for part in parts):
            break
        nested = any(isinstance(entry, list) for part in parts for entry in part[:1])
        if nested and any(len(part) != size for part in parts):
            raise InputError(f"The nesting of {name} does not match its shape {list(shape)}.")
        parts = list(chain.from_iterable(parts))
        if not nested:
            break
    if not isinstance(data, list) or len(parts) != math.prod(shape):
        raise InputError(f"The number of values in {name} does not match its shape {list(shape)}.")
    return parts


def convert(array: Array, spec: TensorSpec, axes: dict[str, int]) -> Array:
    """Check an input against its spec and convert it to the type that the model takes.

    Inputs of graphs (those with a limit) become float32. Other inputs are in the user's units and
    are converted like `.npy` bodies: float32 stays float32, everything else becomes float64.

    Args:
        array: the values as sent.
        spec: the input that they are for.
        axes: sizes of the named axes so far; this input's axes are added to it.

    Raises:
        InputError: the shape does not match, or a value is not finite or exceeds the limit.
    """
    _check_shape(array, spec, axes)
    single = array.dtype == np.float32 or spec.limit < math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # the result is checked below
        array = np.ascontiguousarray(array, np.float32 if single else np.float64)
        valid = np.abs(array) <= spec.limit if spec.limit < math.inf else np.isfinite(array)
    if not valid.all():
        _raise_for_value(array, spec, np.argwhere(~valid)[0])
    return array


def _check_shape(array: Array, spec: TensorSpec, axes: dict[str, int]) -> None:
    expected = [axes.get(size, size) if isinstance(size, str) else size for size in spec.shape]
    pairs = list(zip(expected, array.shape, strict=False))
    if len(expected) != array.ndim or any(
        actual != size if isinstance(size, int) else actual == 0 for size, actual in pairs
    ):
        shape = ", ".join(map(str, expected))
        raise InputError(f"{spec.name} has shape {list(array.shape)}; expected [{shape}].")
    axes |= {size: actual for size, actual in pairs if isinstance(size, str)}


def _raise_for_value(array: Array, spec: TensorSpec, index: Sequence[int]) -> None:
    value, position = array[tuple(index)], "".join(f"[{i}]" for i in index)
    if np.isfinite(value):
        raise InputError(
            f"{spec.name}{position} is {value:g}; the largest magnitude allowed is {spec.limit:g}."
        )
    raise InputError(f"{spec.name}{position} is {value}, not a finite number.")


def encode_json(array: Array) -> orjson.Fragment:
    """Write the values as one flat JSON list.

    Each row is a separate orjson call, because orjson holds the GIL during a call.
    """
    rows = array.reshape(len(array) if array.size and array.ndim > 1 else 1, -1)
    texts = [orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1] for row in rows]
    return orjson.Fragment(b"[%s]" % b",".join(texts))
