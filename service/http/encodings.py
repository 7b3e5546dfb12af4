"""Bytes to arrays and back: JSON, `.npy`, `.npz`, and the two ways a point stands in a query.

Nothing is unpickled. NaN and infinity are refused on the way in and never written on the way out
(orjson would write null in their place).
"""

import base64
import io
import math
import re
import struct
from collections.abc import Mapping
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
R = TypeVar("R", NDArray[np.float32], NDArray[np.float64])

# What rows may hold. Looked at before NumPy sees them: it takes true for 1 among numbers, and gives
# every number as much memory as the longest text beside it.
NUMBERS = {int, float}
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
BASE64URL = re.compile(r"([A-Za-z0-9_-]{4})*[A-Za-z0-9_-]{2,4}={0,2}")


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a JSON body holds."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"The body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InputError("The body is JSON, but not an object.")
    return value


def could_hold_booleans(body: bytes) -> bool:
    """By a letter of each of their names; to look at every number takes fifty times longer."""
    return b"u" in body or b"f" in body


def rows_of_json(value: object, numbers: bool = False) -> Doubles:
    """A list of lists of numbers; (n, d). `numbers`: it is known that none of them is a boolean."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        raise InputError("x is not a list of rows, each a list of numbers.")
    lengths = {len(row) for row in value}
    if len(lengths) > 1:
        raise InputError(f"x has rows of {min(lengths)} and of {max(lengths)} numbers.")
    sound = _surely_finite(value)
    if not (sound and numbers) and not all(set(map(type, row)) <= NUMBERS for row in value):
        raise InputError("x holds something that is not a number.")
    if lengths == {0}:
        raise InputError("x has empty rows.")
    if not sound:
        return finite(np.array(value, np.float64))
    packed = b"".join([_packed(row) for row in value])
    return np.frombuffer(packed).reshape(len(value), max(lengths, default=0))


def _packed(row: list[float]) -> bytes:
    """In half the time that NumPy takes for it."""
    return struct.pack(f"{len(row)}d", *row)


def _surely_finite(rows: list[list[float]]) -> bool:
    """All numbers (or booleans), and finite; without NumPy, which would give the GIL away."""
    try:
        return math.isfinite(sum(map(sum, rows)))
    except (TypeError, OverflowError):  # of an integer beyond all floats
        return False


def rows_of_npy(body: bytes) -> Reals:
    """A two-dimensional array of real numbers; (n, d)."""
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
    except ValueError:
        raise InputError("The body is not a .npy file.") from None
    if version not in HEADERS:
        raise InputError("The body is a .npy file of a version other than 1.0 and 2.0.")
    try:
        shape, fortran, dtype = HEADERS[version](stream)
    except Exception:  # a header is Python source, and can fail in as many ways
        raise InputError("The header of the .npy body is not understood.") from None
    _check_header(shape, dtype, len(body) - stream.tell())
    array = np.frombuffer(body, dtype, offset=stream.tell())
    array = array.reshape(shape, order="F" if fortran else "C")
    if dtype == np.float32 and not fortran:
        return finite(array)
    return _doubles(array)


def _doubles(array: Array) -> Doubles:
    with np.errstate(invalid="ignore"):  # of a signalling NaN, which is refused as others are
        return finite(array.astype(np.float64, order="C"))  # orjson writes no other order


def _check_header(shape: tuple[int, ...], dtype: np.dtype[Any], bytes_left: int) -> None:
    """Before any memory is asked for: a header can claim anything."""
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise InputError(f"x is an array of {dtype}, not of real numbers.")
    if len(shape) != 2:
        raise InputError(f"x has {len(shape)} axes, but two are wanted: rows and columns.")
    whole = all(type(size) is int and size >= 0 for size in shape)  # True is an int as well
    if not whole or math.prod(shape) * dtype.itemsize != bytes_left:
        raise InputError(f"The .npy body is not as long as an array of shape {shape}.")
    if shape[0] and not shape[1]:
        raise InputError("x has empty rows.")


def row_of_text(text: str) -> Doubles:
    """`0.5,-1,2e-3`; (d,)."""
    try:
        values = [float(word) for word in text.split(",")]
        if "_" in text or not text.isascii():  # 1_000 and ١٢, which only Python would take
            raise ValueError
    except ValueError:
        raise InputError("x is not a list of numbers with commas between them.") from None
    return finite(np.array(values, np.float64))


def row_of_base64(text: str) -> Doubles:
    """Little-endian float32 in base64url, with or without its padding; (d,)."""
    try:
        if not BASE64URL.fullmatch(text):  # Python would take + and / as well
            raise ValueError
        digits = text.rstrip("=")
        raw = base64.b64decode(digits + "=" * (-len(digits) % 4), altchars=b"-_", validate=True)
    except ValueError:  # binascii.Error is one
        raise InputError("x_b64 is not base64url.") from None
    if not raw or len(raw) % 4:
        raise InputError(f"x_b64 holds {len(raw)} bytes, but a float32 takes 4.")
    return _doubles(np.frombuffer(raw, "<f4"))


def finite(x: R) -> R:
    """x itself, if there is neither NaN nor infinity in it."""
    sound = np.isfinite(x)
    if not sound.all():
        bad = np.argwhere(~sound)
        place = "".join(f"[{i}]" for i in bad[0])
        raise InputError(f"x{place} is {x[tuple(bad[0])]}, not a finite number.")
    return x


def write_json(fields: Mapping[str, Any]) -> bytes:
    return b"{%s}" % b",".join([_member(name, value) for name, value in fields.items()])


def _member(name: str, value: Any) -> bytes:
    if not isinstance(value, np.ndarray):
        return _dumps(name) + b":" + _dumps(value)
    written = _array(value)
    if b"u" in written:  # of null, as orjson writes NaN and infinity
        raise _unusable(name)
    return _dumps(name) + b":" + written


def _array(array: Array) -> bytes:
    """Row by row, because orjson holds the GIL while it writes and others want it meanwhile."""
    if array.ndim > 1:
        return b"[%s]" % b",".join([_array(row) for row in array])
    return _dumps(array)


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def write_npy(array: Array) -> bytes:
    _check_answer({"answer": array})
    return b"".join([npy_header(array.shape, array.dtype), raw(array)])


def raw(array: Array) -> memoryview:
    """Its numbers in C order, without a copy where they are so already."""
    return np.ascontiguousarray(array).data.cast("B")


@lru_cache(maxsize=1024)
def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """What stands before the numbers of an array."""
    stream = io.BytesIO()
    fields = {"shape": shape, "fortran_order": False, "descr": dtype.str}
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
            raise _unusable(name)


def _unusable(name: str) -> UnusableAnswerError:
    return UnusableAnswerError(f"The answer's {name} holds NaN or infinity.")
