"""Content types: which format a body has, and in which format the client wants its response."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from starlette.requests import Request
from starlette.responses import Response

from localmoments.errors import MediaTypeError, NotAcceptableError
from service.http.encodings import JSON, NPY


def body_format(request: Request, formats: Sequence[str] = (JSON, NPY)) -> str:
    """Return the body's content type, JSON if there is none; raise MediaTypeError for others."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise MediaTypeError(f"Content encoding {encoding[:50]!r} is not supported.")
    return read_content_type(request, formats)


def read_content_type(request: Request, formats: Sequence[str]) -> str:
    """Return the content type of a body in any encoding; raise MediaTypeError for other types."""
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind not in formats:
        raise MediaTypeError(
            f"Content type {kind[:100]!r} is not supported; send {' or '.join(formats)}."
        )
    return kind


def response_format(request: Request, offered: Sequence[str]) -> str:
    """Return the offered format that `Accept` prefers; the first one if it prefers none."""
    return _best_format(request.headers.get("accept", "*/*"), tuple(offered))


def make_response(content: bytes, kind: str, headers: Mapping[str, str]) -> Response:
    """Return a response whose format depends on `Accept`."""
    return Response(content, media_type=kind, headers={"vary": "accept", **headers})


@lru_cache(maxsize=1024)
def _best_format(accepted: str, offered: tuple[str, ...]) -> str:
    ranges = [_parse_range(part) for part in accepted.split(",")]
    best = max(offered, key=lambda kind: _quality(kind, ranges))  # max keeps the first of equals
    if _quality(best, ranges) <= 0:
        raise NotAcceptableError(f"The response can be {' or '.join(offered)}.")
    return best


def _parse_range(part: str) -> tuple[str, float]:
    """Split `text/html;q=0.8` into its media range and its quality."""
    kind, *parameters = (word.strip().lower() for word in part.split(";"))
    quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        return kind or "*/*", min(1.0, max(0.0, float(quality)))
    except ValueError:
        return kind, 0.0


def _quality(kind: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that covers the format."""
    for covering in (kind, f"{kind.partition('/')[0]}/*", "*/*"):
        qualities = [quality for media_range, quality in ranges if media_range == covering]
        if qualities:
            return max(qualities)
    return 0.0
