"""Which format a body comes in, and which one the caller takes back."""

from collections.abc import Sequence
from functools import lru_cache

from starlette.requests import Request

from localmoments.errors import MediaTypeError, NotAcceptableError
from service.http.encodings import JSON, NPY


def body_format(request: Request) -> str:
    """JSON or NPY; a body that does not say what it is counts as JSON."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise MediaTypeError(f"A body with content encoding {encoding[:50]!r} is not read here.")
    said = request.headers.get("content-type", JSON)
    kind = said.partition(";")[0].strip().lower()
    if kind not in (JSON, NPY):
        raise MediaTypeError(f"A body of {kind[:100]!r} is not read here; send {JSON} or {NPY}.")
    return kind


def answer_format(request: Request, offered: Sequence[str]) -> str:
    """Of the formats offered, the one that `Accept` likes best; the first where it is all one."""
    return _best(request.headers.get("accept", "*/*"), tuple(offered))


@lru_cache(maxsize=1024)
def _best(accepted: str, offered: tuple[str, ...]) -> str:
    wishes = [_wish(part) for part in accepted.split(",")]
    best = max(offered, key=lambda kind: _liking(kind, wishes))  # max keeps the first of equals
    if _liking(best, wishes) <= 0:
        raise NotAcceptableError(f"This is answered as {' or '.join(offered)} only.")
    return best


def _wish(part: str) -> tuple[str, float]:
    """`text/html;q=0.8` as its range and its weight."""
    kind, *parameters = (word.strip().lower() for word in part.split(";"))
    weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
    try:
        return kind or "*/*", min(1.0, max(0.0, float(weight)))
    except ValueError:
        return kind, 0.0


def _liking(kind: str, wishes: Sequence[tuple[str, float]]) -> float:
    """The weight of the most exact range that covers the kind."""
    ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")
    for covering in ranges:
        weights = [weight for range_, weight in wishes if range_ == covering]
        if weights:
            return max(weights)
    return 0.0
