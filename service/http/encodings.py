"""Bytes to arrays and back: JSON, `.npy`, `.npz`, and the two ways to write a point in a query.

Nothing is unpickled. NaN and infinity are refused in requests and are never written to responses,
where orjson would write null instead.
"""

import asyncio
import base64
import io
import math
import re
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Reals
from localmoments.errors import InputError, UnusableAnswerError

JSON = "application/json"
NPY = "application/x-npy"
NPZ = "application/x-npz"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"

Array = NDArray[np.generic]
T = TypeVar("T")
R = TypeVar("R", NDArray[np.float32], NDArray[np.float64])

# The types that rows may hold. They are checked before NumPy sees them: it reads true as 1, and
# gives every number of an array as much memory as the longest text in it.
NUMBERS = {int, float}
LARGE = 2**16  # bytes or numbers; more would block the event loop for too long
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
BASE64URL = re.compile(r"([A-Za-z0-9_-]{4})*[A-Za-z0-9_-]{2,4}={0,2}")


def read_json(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InputError("The body must be a JSON object.")
    return value


def may_hold_booleans(body: bytes) -> bool:
    """Look for a letter of `true` or `false`; looking at every value takes fifty times as long."""
    return b"u" in body or b"f" in body


def parse_json_rows(value: object, *, numbers: bool = False, name: str = "x") -> Doubles:
    """Convert a list of rows; (n, d). Errors call it `name`.

    With `numbers`, the caller knows that there are no booleans among the values.
    """
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise InputError(f"{name} must be a list of rows, each a list of numbers.")
    lengths = {len(row) for row in value}
    if len(lengths) > 1:
        raise InputError(
            f"{name} must have rows of equal length; got {min(lengths)} and {max(lengths)}."
        )
    is_finite = _is_surely_finite(value)
    if not (is_finite and numbers) and not all(set(map(type, row)) <= NUMBERS for row in value):
        raise InputError(f"{name} contains a value that is not a number.")
    if lengths == {0}:
        raise InputError(f"{name} has empty rows.")
    if not is_finite:
        return check_finite(np.array(value, np.float64), name)
    packed = b"".join([_pack(row) for row in value])
    return np.frombuffer(packed).reshape(len(value), max(lengths, default=0))


def _pack(row: list[float]) -> bytes:
    """Convert a row to bytes, in half the time that NumPy takes."""
    return struct.pack(f"{len(row)}d", *row)


def _is_surely_finite(rows: list[list[float]]) -> bool:
    """Check that all values are finite numbers or booleans; NumPy would release the GIL."""
    try:
        return math.isfinite(sum(map(sum, rows)))
    except (TypeError, OverflowError):  # an integer too large for a float
        return False


def parse_npy_rows(body: bytes) -> Reals:
    """Parse a `.npy` file that holds a matrix of real numbers; (n, d)."""
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
    except ValueError:
        raise InputError("The body is not a .npy file.") from None
    if version not in HEADERS:
        raise InputError("The body must be a .npy file of version 1.0 or 2.0.")
    try:
        shape, fortran, dtype = HEADERS[version](stream)
    except Exception:  # the header is Python source and can fail in many ways
        raise InputError("The header of the .npy body is not valid.") from None
    _check_header(shape, dtype, len(body) - stream.tell())
    array = np.frombuffer(body, dtype, offset=stream.tell())
    array = array.reshape(shape, order="F" if fortran else "C")
    if dtype == np.float32 and not fortran:
        return check_finite(array)
    return _to_doubles(array)


def _to_doubles(array: Array) -> Doubles:
    with np.errstate(invalid="ignore"):  # a signalling NaN, refused like any other NaN
        return check_finite(array.astype(np.float64, order="C"))  # orjson needs C order


def _check_header(shape: tuple[int, ...], dtype: np.dtype[Any], bytes_left: int) -> None:
    """Check the header before allocating memory: it can claim any size."""
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise InputError(f"x must be an array of real numbers; got {dtype}.")
    if len(shape) != 2:
        raise InputError(f"x must have two axes, rows and columns; got {len(shape)}.")
    is_valid = all(type(size) is int and size >= 0 for size in shape)  # True is an int, too
    if not is_valid or math.prod(shape) * dtype.itemsize != bytes_left:
        raise InputError(f"The .npy body does not have the length of an array of shape {shape}.")
    if shape[0] and not shape[1]:
        raise InputError("x has empty rows.")


def parse_row(text: str) -> Doubles:
    """Parse `0.5,-1,2e-3`; (d,)."""
    try:
        values = [float(word) for word in text.split(",")]
        if "_" in text or not text.isascii():  # Python also reads 1_000 and ١٢
            raise ValueError
    except ValueError:
        raise InputError("x must be numbers separated by commas.") from None
    return check_finite(np.array(values, np.float64))


def parse_base64_row(text: str) -> Doubles:
    """Parse little-endian float32 in base64url, with or without padding; (d,)."""
    try:
        if not BASE64URL.fullmatch(text):  # Python also reads + and /
            raise ValueError
        digits = text.rstrip("=")
        raw = base64.b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_", validate=True)
    except ValueError:  # binascii.Error is one
        raise InputError("x_b64 is not valid base64url.") from None
    if not raw or len(raw) % 4:
        raise InputError(
            f"x_b64 has {len(raw)} bytes, which is not a whole number of float32 values."
        )
    return _to_doubles(np.frombuffer(raw, "<f4"))


def check_finite(x: R, name: str = "x") -> R:
    """Return x if all its values are finite; raise InputError otherwise."""
    is_finite = np.isfinite(x)
    if not is_finite.all():
        bad = np.argwhere(~is_finite)
        place = "".join(f"[{i}]" for i in bad[0])
        raise InputError(f"{name}{place} is {x[tuple(bad[0])]}, not a finite number.")
    return x


def write_json(fields: Mapping[str, Any]) -> bytes:
    """Write an object whose values may be arrays; raise UnusableAnswerError for NaN."""
    return b"{%s}" % b",".join([_write_member(name, value) for name, value in fields.items()])


def _write_member(name: str, value: Any) -> bytes:
    if not isinstance(value, np.ndarray):
        return _dumps(name) + b":" + _dumps(value)
    written = _write_array(value)
    if b"u" in written:  # of null, which orjson writes for NaN and infinity
        raise _unusable(name)
    return _dumps(name) + b":" + written


def _write_array(array: Array) -> bytes:
    """Write row by row, so that orjson does not hold the GIL for long."""
    if array.ndim > 1:
        return b"[%s]" % b",".join([_write_array(row) for row in array])
    return _dumps(array)


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def write_npy(array: Array) -> bytes:
    """Write a `.npy` file; raise UnusableAnswerError for NaN or infinity."""
    _check_response({"array": array})
    return b"".join([make_npy_header(array.shape, array.dtype), get_raw_bytes(array)])


def get_raw_bytes(array: Array) -> memoryview:
    """Return the values in C order, without a copy if they are in that order already."""
    return np.ascontiguousarray(array).data.cast("B")


@lru_cache(maxsize=1024)
def make_npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return what precedes the values in a `.npy` file."""
    stream = io.BytesIO()
    fields = {"shape": shape, "fortran_order": False, "descr": dtype.str}
    np.lib.format.write_array_header_1_0(stream, fields)
    return stream.getvalue()


def write_npz(fields: Mapping[str, Any]) -> bytes:
    """Write each field as an array of its name; text becomes an array without axes."""
    _check_response(fields)
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **{name: np.asarray(v) for name, v in fields.items()})
    return stream.getvalue()


def _check_response(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, np.ndarray) and not np.isfinite(value).all():
            raise _unusable(name)


def _unusable(name: str) -> UnusableAnswerError:
    return UnusableAnswerError(f"The result has NaN or infinity in {name}.")


async def run_off_loop(size: int, function: Callable[..., T], *args: object) -> T:
    """Run small work here and large work on a thread; `size` is in bytes or numbers."""
    return await asyncio.to_thread(function, *args) if size > LARGE else function(*args)
