"""Bytes to arrays and back: JSON, `.npy`, `.npz`, and the two ways a point stands in a query.

Nothing is unpickled. NaN and infinity are refused on the way in and never written on the way out
(orjson would write null in their place).
"""

import base64
import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.core.errors import InputError, UnusableAnswerError
from service.core.types import Doubles

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/x-npz"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"

Array = NDArray[np.generic]


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a JSON body holds."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"The body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InputError("The body is JSON, but not an object.")
    return value


def rows_of_json(value: object) -> Doubles:
    """A list of lists of numbers; (n, d)."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise InputError("x is not a list of rows, each a list of numbers.")
    lengths = {len(row) for row in value}
    if len(lengths) > 1:
        raise InputError(f"x has rows of {min(lengths)} and of {max(lengths)} numbers.")
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # lists in place of some numbers
        raise InputError("x holds something that is not a number.") from None
    if value and not array.size:
        raise InputError("x has empty rows.")
    if array.size and (array.dtype.kind not in "fiu" or array.ndim != 2 or _has_bool(value)):
        raise InputError("x holds something that is not a number.")
    return finite(array.astype(np.float64).reshape(len(value), -1) if value else np.zeros((0, 0)))


def _has_bool(value: list[list[object]]) -> bool:
    """NumPy takes true for 1 when it stands among numbers."""
    return any(bool in set(map(type, row)) for row in value)


def rows_of_npy(body: bytes) -> Doubles:
    """A two-dimensional array of real numbers; (n, d)."""
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version} of the format is not read here")
        first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except Exception as error:  # a header is Python source, and can fail in as many ways
        raise InputError(f"The body is not a .npy file: {_first_line(error)}.") from None
    _check_header(shape, dtype, len(body) - stream.tell())
    array = np.frombuffer(body, dtype, offset=stream.tell())
    return finite(array.reshape(shape, order="F" if fortran else "C").astype(np.float64))


def _check_header(shape: tuple[int, ...], dtype: np.dtype[Any], bytes_left: int) -> None:
    """Before any memory is asked for: a header can claim anything."""
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise InputError(f"x is an array of {dtype}, not of real numbers.")
    if len(shape) != 2:
        raise InputError(f"x has {len(shape)} axes, but two are wanted: rows and columns.")
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != bytes_left:
        raise InputError(f"The .npy body is not as long as an array of shape {shape}.")
    if shape[0] and not shape[1]:
        raise InputError("x has empty rows.")


def row_of_text(text: str) -> Doubles:
    """`0.5,-1,2e-3`; (d,)."""
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise InputError("x is not a list of numbers with commas between them.") from None
    if "_" in text:  # Python's own way to write 1_000
        raise InputError("x is not a list of numbers with commas between them.")
    return finite(np.array(values, np.float64))


def row_of_base64(text: str) -> Doubles:
    """Little-endian float32 in base64url, with or without its padding; (d,)."""
    digits = text.rstrip("=")
    try:
        if "+" in digits or "/" in digits:  # the other base64, which Python would take as well
            raise ValueError
        padded = (digits + "=" * (-len(digits) % 4)).encode("ascii")
        raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    except ValueError:  # binascii.Error is one
        raise InputError("x_b64 is not base64url.") from None
    if not raw or len(raw) % 4:
        raise InputError(f"x_b64 holds {len(raw)} bytes, but a float32 takes 4.")
    return finite(np.frombuffer(raw, "<f4").astype(np.float64))


def finite(x: Doubles) -> Doubles:
    """x itself, if there is neither NaN nor infinity in it."""
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        place = "".join(f"[{i}]" for i in bad[0])
        raise InputError(f"x{place} is {x[tuple(bad[0])]}, not a finite number.")
    return x


def write_json(fields: Mapping[str, Any]) -> bytes:
    """Row by row, because orjson holds the GIL while it writes and others want it meanwhile."""
    _check_answer(fields)
    return b"{%s}" % b",".join([_dumps(name) + b":" + _value(v) for name, v in fields.items()])


def _value(value: Any) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return b"[%s]" % b",".join([_value(row) for row in value])
    return _dumps(value)


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def write_npy(array: Array) -> bytes:
    _check_answer({"answer": array})
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def npy_header(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """What stands before the numbers of an array that is written piece by piece."""
    stream = io.BytesIO()
    fields = {"shape": shape, "fortran_order": False, "descr": dtype}
    np.lib.format.write_array_header_1_0(stream, fields)
    return stream.getvalue()


def write_npz(fields: Mapping[str, Any]) -> bytes:
    """Every field as an array of its name; words become arrays without axes."""
    _check_answer(fields)
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **{name: np.asarray(v) for name, v in fields.items()})
    return stream.getvalue()


def _check_answer(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, np.ndarray) and not np.isfinite(value).all():
            raise UnusableAnswerError(f"The answer's {name} holds NaN or infinity.")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(".")
