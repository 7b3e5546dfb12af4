"""Numbers survive every encoding bit for bit; anything that is not a number is refused."""

import base64
import contextlib
import io
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmoments.errors import InputError, UnusableAnswerError
from service.http.encodings import (
    parse_base64_row,
    parse_json_rows,
    parse_npy_rows,
    parse_row,
    read_json,
    write_json,
    write_npy,
    write_npz,
)


def npy(array: Any, **how: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), **how)
    return stream.getvalue()


@pytest.fixture
def rows() -> Any:
    return np.random.default_rng(0).standard_normal((5, 3)) * 10.0 ** np.arange(-8, 7).reshape(5, 3)


def test_json_round_trips_bit_for_bit(rows: Any) -> None:
    again = parse_json_rows(read_json(write_json({"x": rows}))["x"])
    assert np.array_equal(again, rows)


def test_json_equals_what_orjson_writes_at_once(rows: Any) -> None:
    fields = {"model": "a@1", "x": rows, "one": rows[0], "deep": rows[None], "none": None}
    assert write_json(fields) == orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)


def test_npy_round_trips_bit_for_bit(rows: Any) -> None:
    assert np.array_equal(parse_npy_rows(write_npy(rows)), rows)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "<i8", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_may_have_any_real_type_and_order(dtype: str, order: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype, order=order)
    rows = parse_npy_rows(npy(array))
    assert np.array_equal(rows, array.astype(np.float64))
    assert rows.flags.c_contiguous  # or orjson cannot write them back
    assert np.array_equal(parse_npy_rows(npy(array, version=(2, 0))), array.astype(np.float64))


def test_npz_holds_arrays_and_text(rows: Any) -> None:
    got = np.load(io.BytesIO(write_npz({"x": rows, "model": "a@1", "sigma": 0.5})))
    assert np.array_equal(got["x"], rows)
    assert (str(got["model"]), float(got["sigma"])) == ("a@1", 0.5)


def test_a_point_in_a_query_is_parsed() -> None:
    assert np.array_equal(parse_row("0.5,-1,2e-3"), [0.5, -1, 2e-3])
    raw = np.array([0.1, -2.5, 3e7], "<f4")
    text = base64.urlsafe_b64encode(raw.tobytes()).decode()
    for written in (text, text.rstrip("=")):
        assert np.array_equal(parse_base64_row(written), raw.astype(np.float64))


@pytest.mark.parametrize(
    "value",
    [None, 3, "1,2", {}, [1.0, 2.0], [["1"]], [[None]], [[True, 1.0]], [[True]], [[1], [1, 2]],
     [["a" * 10**6, *[0] * 10**6]],
     [[]], [[[1.0]]], [[1.0, [2.0]]], [[{}]], [[2**70, "x"]], [[1.0], 2.0]],
)  # fmt: skip
def test_json_that_is_not_rows_of_numbers_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"^x .*\.$"):
        parse_json_rows(value)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b'{"x": NaN}', b'{"x": 1e999}', b"\xff"])
def test_a_body_that_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match=r"^The body .*\.$"):
        read_json(body)


HUGE = b"\x93NUMPY\x01\x00v\x00" + (
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000000), }".ljust(117) + b"\n"
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93NUMPY",
        b"not one",
        npy([[1.0]])[:-1],
        npy([[1.0]]) + b"x",
        npy([1.0]),
        npy(1.0),
        npy([[[1.0]]]),
        npy([["a"]]),
        npy([[1j]]),
        npy([[True]]),
        npy(np.zeros((3, 0))),
        npy(np.zeros((1, 2), [("a", "f4")])),
        npy(np.array([[None]]), allow_pickle=True),
        npy([[1.0]]).replace(b"(1, 1)", b"(-1,-1"),
        npy([[1.0]]).replace(b"(1, 1), }   ", b"(True, 1), }"),
        npy([[1.0]]).replace(b"(1, 1)", b"(((((("),
        HUGE,
    ],
)
def test_an_npy_body_that_is_not_rows_of_numbers_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match=r"\.$"):
        parse_npy_rows(body)


@given(st.binary(max_size=200))
def test_random_bytes_after_the_magic_are_refused_or_read(noise: bytes) -> None:
    for start in (b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x36\x00"):
        with contextlib.suppress(InputError):
            assert parse_npy_rows(start + noise).ndim == 2


@pytest.mark.parametrize("text", ["", "1,", "1;2", "a", "1_0", "0x1", "nan", "1,inf", "1 2"])
def test_text_that_is_not_a_point_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"\.$"):
        parse_row(text)


@pytest.mark.parametrize(
    "text", ["", "=", "AAA", "AAAAA", "AA AA", "ä", "AAAA", "+/+/AA", "AACAfw"]
)
def test_base64_that_is_not_a_point_is_refused(text: str) -> None:
    """The last is NaN."""
    with pytest.raises(InputError, match=r"\.$"):
        parse_base64_row(text)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_in_requests_and_responses(bad: float) -> None:
    rows = np.array([[1.0, 2.0], [3.0, bad]])
    with pytest.raises(InputError, match=r"^x\[1\]\[1\] is -?(nan|inf)"):
        parse_npy_rows(npy(rows))
    for write in (write_json, write_npz):
        with pytest.raises(UnusableAnswerError, match="mean"):
            write({"mean": rows})
    with pytest.raises(UnusableAnswerError):
        write_npy(rows)
