"""Content negotiation: the format of a body, and the format of the response."""

from typing import Any

import pytest
from starlette.requests import Request

from localmoments.errors import MediaTypeError, NotAcceptableError
from service.http.encodings import JSON, NPY
from service.http.negotiation import body_format, response_format


def request(**headers: str) -> Request:
    raw: list[Any] = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
    return Request({"type": "http", "headers": raw})


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", JSON),
        ("", JSON),
        ("application/*", JSON),
        (NPY, NPY),
        (NPY.upper(), NPY),
        (f"{JSON}, {NPY}", JSON),
        (f"{JSON};q=0.5, {NPY};q=0.9", NPY),
        (f"text/html, */*;q=0.1, {NPY};q=0.2", NPY),
        (f"*/*, {JSON};q=0", NPY),
        (f"{JSON}; charset=utf-8", JSON),
        (f"{NPY};q=broken, {JSON}", JSON),
    ],
)
def test_the_response_has_the_format_that_accept_prefers(accept: str, expected: str) -> None:
    assert response_format(request(accept=accept), (JSON, NPY)) == expected


def test_without_accept_the_first_format_is_used() -> None:
    assert response_format(request(), (JSON, NPY)) == JSON


@pytest.mark.parametrize("accept", ["text/html", "image/*", f"{JSON};q=0", "nonsense"])
def test_an_accept_header_without_an_offered_format_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptableError, match=f"{JSON} or {NPY}"):
        response_format(request(accept=accept), (JSON, NPY))


def test_the_format_of_a_body_is_its_content_type() -> None:
    assert body_format(request()) == JSON
    assert body_format(request(content_type="Application/JSON; charset=utf-8")) == JSON
    assert body_format(request(content_type=NPY, content_encoding="identity")) == NPY


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "x"])
def test_other_content_types_are_refused(kind: str) -> None:
    with pytest.raises(MediaTypeError, match=NPY):
        body_format(request(content_type=kind))


def test_a_compressed_body_is_refused() -> None:
    with pytest.raises(MediaTypeError, match="gzip"):
        body_format(request(content_encoding="gzip"))
