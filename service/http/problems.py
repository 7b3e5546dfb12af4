"""Every error as RFC 9457 `application/problem+json`, by one table from exception to status.

`error` repeats `detail`, because Open Inference Protocol clients read it there.
"""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from localmoments import errors

M = TypeVar("M", bound=BaseModel)

PROBLEM = "application/problem+json"
UNEXPECTED = "An unexpected error; the log has it under this request id."
PYDANTICS = re.compile(r"(query|body|path|header|From\w+)$|(literal|list|constrained-\w+)\b")
MOST_FIELDS = 100  # in one object of a request; pydantic would tell of each that is not known


@dataclass(frozen=True)
class Kind:
    """What all problems of one sort share."""

    status: int
    name: str
    title: str


KINDS: Mapping[type[Exception], Kind] = {
    errors.InputError: Kind(422, "bad-input", "The input does not fit"),
    RequestValidationError: Kind(422, "bad-input", "The input does not fit"),
    errors.UsedKeyError: Kind(422, "bad-input", "The input does not fit"),
    errors.DivergedError: Kind(422, "diverged", "The chain diverged"),
    errors.TooLargeError: Kind(413, "too-large", "The request is too large"),
    errors.UnknownModelError: Kind(404, "unknown-model", "There is no such model"),
    errors.MediaTypeError: Kind(415, "media-type", "The body's format is not read here"),
    errors.NotAcceptableError: Kind(406, "not-acceptable", "No acceptable format"),
    errors.UnknownChainError: Kind(404, "unknown-chain", "There is no such chain"),
    errors.ExpiredChainError: Kind(410, "expired-chain", "The chain is no more"),
    errors.BusyChainError: Kind(409, "busy-chain", "The chain is in use"),
    errors.StaleChainError: Kind(409, "stale-chain", "The chain cannot go on like that"),
    errors.SlowBodyError: Kind(408, "slow-body", "The body did not arrive in time"),
    errors.NoKeyError: Kind(401, "no-key", "An API key is needed"),
    errors.ScopeError: Kind(403, "no-scope", "The API key does not allow this"),
    errors.RateError: Kind(429, "rate", "The API key's limit is reached"),
    errors.OverloadError: Kind(429, "overload", "There is too much to do at the moment"),
    errors.LateError: Kind(408, "late", "It was not done in time"),
    errors.ComputeError: Kind(503, "worker", "The computation failed and begins anew"),
    errors.StoreError: Kind(503, "store-down", "The chain store does not answer"),
    errors.DrainingError: Kind(503, "draining", "The service is about to end"),
    errors.NoModelError: Kind(503, "no-model", "No model is usable"),
    errors.ArtefactError: Kind(500, "bad-model", "The model turned out to be broken"),
    errors.UnusableAnswerError: Kind(500, "bad-answer", "The model's answer is not usable"),
    Exception: Kind(500, "internal", "Something went wrong on the server's side"),
}


def install(app: FastAPI) -> None:
    """Exceptions of these families become problems wherever they are raised."""
    for family in (errors.LocalMomentsError, RequestValidationError, HTTPException):
        app.add_exception_handler(family, _handle)


async def _handle(request: Request, error: Exception) -> Response:
    return problem(error, request.scope)


def problem(error: Exception, scope: Scope) -> Response:
    """The answer that tells the caller of the error."""
    if isinstance(error, HTTPException):
        headers = {**(error.headers or {}), **_allowed(scope)}
        return _answer(_http_kind(error), _http_detail(error, scope), scope, headers)
    if isinstance(error, RequestValidationError):
        faults = validation_faults(error.errors())
        detail = validation_sentence(faults)
        return _answer(kind_of(error), detail, scope, errors=faults)
    if isinstance(error, errors.LocalMomentsError):
        return _answer(kind_of(error), str(error), scope, _headers(error), **error.facts)
    return _answer(kind_of(error), UNEXPECTED, scope)


def _headers(error: errors.LocalMomentsError) -> dict[str, str]:
    headers = {"www-authenticate": "Bearer"} if isinstance(error, errors.NoKeyError) else {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    return headers


def kind_of(error: Exception) -> Kind:
    return next(KINDS[family] for family in type(error).__mro__ if family in KINDS)


def _http_kind(error: HTTPException) -> Kind:
    phrase = HTTPStatus(error.status_code).phrase
    return Kind(error.status_code, phrase.lower().replace(" ", "-"), phrase)


def _http_detail(error: HTTPException, scope: Scope) -> str:
    """Starlette's own word is only the status again."""
    path, method = scope["path"][:200], scope["method"]
    said = {404: f"There is nothing at {path!r}.", 405: f"{path!r} does not take {method}."}
    return said.get(error.status_code, error.detail)


def _allowed(scope: Scope) -> dict[str, str]:
    """The methods of every route at this path; Starlette names those of the first."""
    template = getattr(scope.get("route"), "path", "")
    methods = scope["app"].openapi()["paths"].get(template, {})
    return {"Allow": ", ".join(sorted(methods)).upper()} if methods else {}


def malformed(sentence: str) -> bytes:
    """The whole answer to what is not HTTP, which no application ever sees."""
    kind = Kind(400, "malformed", "The request is not HTTP as it should be")
    body = orjson.dumps(_fields(kind, sentence, {}))
    head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {PROBLEM}\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def whole_answer(error: errors.LocalMomentsError, request_id: str) -> bytes:
    """Head and body, for what is answered before an application sees it."""
    kind = kind_of(error)
    body = orjson.dumps(_fields(kind, str(error), {"state": {"request_id": request_id}}))
    more = {**_headers(error), "x-request-id": request_id, "content-length": str(len(body))}
    lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}", f"content-type: {PROBLEM}"]
    lines += [f"{name}: {value}" for name, value in more.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def told(error: Exception, scope: Scope) -> dict[str, Any]:
    """The same as fields, for an answer that has begun already."""
    if isinstance(error, errors.LocalMomentsError):
        return _fields(kind_of(error), str(error), scope, **error.facts)
    return _fields(kind_of(error), UNEXPECTED, scope)


def _fields(kind: Kind, detail: str, scope: Scope, **more: Any) -> dict[str, Any]:
    return {
        "type": f"urn:localmoments:problem:{kind.name}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
        "error": detail,
        "request_id": scope.get("state", {}).get("request_id", ""),
        **more,
    }


def _answer(
    kind: Kind, detail: str, scope: Scope, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    # A body that was refused is not read to its end, so the connection cannot be used again.
    closing = {"connection": "close"} if kind.status in (408, 413) else {}
    content = orjson.dumps(_fields(kind, detail, scope, **more))
    return Response(content, kind.status, {**(headers or {}), **closing}, media_type=PROBLEM)


def validated(kind: type[M], fields: Mapping[str, Any]) -> M:
    """The fields of a JSON body, or what is wrong with them, in a sentence."""
    for part in (fields, *fields.values()):
        if isinstance(part, dict) and len(part) > MOST_FIELDS:
            raise errors.InputError(f"An object has {len(part)} fields, more than anything here.")
    try:
        return kind.model_validate(fields, strict=True)
    except ValidationError as error:
        faults = validation_faults(error.errors(include_url=False, include_context=False))
        raise errors.InputError(validation_sentence(faults)) from None


def validation_faults(found: Sequence[Any]) -> list[dict[str, str]]:
    """pydantic's findings as field and message, whatever was sent cut short."""
    return [{"field": _field(f["loc"]), "message": _message(f)} for f in found]


def validation_sentence(faults: Sequence[Mapping[str, str]]) -> str:
    said = dict.fromkeys(f"{f['field']}: {f['message']}" for f in faults[:5])
    return "; ".join(said) + "."


class Short(reprlib.Repr):
    """What was sent may be megabytes long: only what is shown of it is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring = 1, 60


def _field(location: Sequence[str | int]) -> str:
    """As the caller wrote it: pydantic adds where it looked, and which kind it tried."""
    words = [str(part) for part in location if not PYDANTICS.match(str(part))]
    return ascii(".".join(words))[1:-1][:100] or "body"


def _message(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "there is no such parameter"
    given = Short().repr(fault.get("input")).encode("ascii", "backslashreplace").decode()
    return f"{fault['msg'].lower()} (it is {given if len(given) <= 60 else given[:60] + '...'})"
