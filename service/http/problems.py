"""Every error as RFC 9457 `application/problem+json`, by one table from exception to status.

`error` repeats `detail`, because clients of the Open Inference Protocol read it there.
"""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from localmoments import errors

M = TypeVar("M", bound=BaseModel)

PROBLEM = "application/problem+json"
UNEXPECTED = "An unexpected error occurred. The log has the details under this request id."
# What pydantic adds to the location of a fault: where it looked and which type it tried.
PYDANTIC_PARTS = re.compile(r"(query|body|path|header|From\w+)$|(literal|list|constrained-\w+)\b")
MAX_FIELDS = 100  # in one object of a request; pydantic would report each unknown one


class Fault(BaseModel):
    field: str
    message: str


class Problem(BaseModel):
    """An error, as RFC 9457 defines it."""

    type: Annotated[str, Field(description="URN of the kind of problem.")]
    title: Annotated[str, Field(description="The kind of problem in words.")]
    status: Annotated[int, Field(description="HTTP status.")]
    detail: Annotated[str, Field(description="What went wrong with this request.")]
    error: Annotated[
        str, Field(description="The same as `detail`, for Open Inference Protocol clients.")
    ]
    request_id: Annotated[str, Field(description="The `X-Request-ID` of the request.")]
    errors: Annotated[
        list[Fault] | None, Field(description="The parameters that are wrong, one by one.")
    ] = None


@dataclass(frozen=True)
class Kind:
    """What all problems of one kind share."""

    status: int
    name: str
    title: str


KINDS: Mapping[type[Exception], Kind] = {
    errors.InputError: Kind(422, "bad-input", "Invalid input"),
    RequestValidationError: Kind(422, "bad-input", "Invalid input"),
    errors.UsedKeyError: Kind(422, "bad-input", "Invalid input"),
    errors.DivergedError: Kind(422, "diverged", "The chain diverged"),
    errors.TooLargeError: Kind(413, "too-large", "The request is too large"),
    errors.UnknownModelError: Kind(404, "unknown-model", "Model not found"),
    errors.MediaTypeError: Kind(415, "media-type", "Unsupported body format"),
    errors.NotAcceptableError: Kind(406, "not-acceptable", "No acceptable response format"),
    errors.UnknownChainError: Kind(404, "unknown-chain", "Chain not found"),
    errors.ExpiredChainError: Kind(410, "expired-chain", "The chain was deleted or has expired"),
    errors.BusyChainError: Kind(409, "busy-chain", "The chain is in use"),
    errors.StaleChainError: Kind(409, "stale-chain", "The chain cannot be resumed like this"),
    errors.SlowBodyError: Kind(408, "slow-body", "The body did not arrive in time"),
    errors.NoKeyError: Kind(401, "no-key", "API key missing or unknown"),
    errors.ScopeError: Kind(403, "no-scope", "The API key does not allow this"),
    errors.RateError: Kind(429, "rate", "The API key's rate limit is reached"),
    errors.OverloadError: Kind(429, "overload", "The service is overloaded"),
    errors.LateError: Kind(408, "late", "The request exceeded its time limit"),
    # "worker" is part of the HTTP contract: it is older than the compute thread.
    errors.ComputeError: Kind(503, "worker", "The computation failed and is restarting"),
    errors.StoreError: Kind(503, "store-down", "The chain store does not respond"),
    errors.DrainingError: Kind(503, "draining", "The service is shutting down"),
    errors.NoModelError: Kind(503, "no-model", "No usable model"),
    errors.ArtefactError: Kind(500, "bad-model", "The model is broken"),
    errors.UnusableAnswerError: Kind(500, "bad-answer", "The model returned NaN or infinity"),
    Exception: Kind(500, "internal", "Internal server error"),
}

# Errors that are the answer to a request; any other exception is a bug and is logged.
EXPECTED = (errors.LocalMomentsError, RequestValidationError, HTTPException)


def problem_response(error: Exception, scope: Scope) -> Response:
    """Return the response that reports an error."""
    if isinstance(error, HTTPException):
        headers = {**(error.headers or {})}
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = _list_methods(scope) or headers.get("Allow", "")
        return _respond(_http_kind(error), _http_detail(error, scope), scope, headers)
    if isinstance(error, RequestValidationError):
        faults = _list_faults(error.errors())
        return _respond(find_kind(error), _join_faults(faults), scope, errors=faults)
    if isinstance(error, errors.LocalMomentsError):
        return _respond(find_kind(error), str(error), scope, _headers(error), **error.facts)
    return _respond(find_kind(error), UNEXPECTED, scope)


def problem_fields(error: Exception, scope: Scope) -> dict[str, Any]:
    """Return the same as fields, for a stream that has started already."""
    if isinstance(error, errors.LocalMomentsError):
        return _fields(find_kind(error), str(error), scope, **error.facts)
    return _fields(find_kind(error), UNEXPECTED, scope)


def find_kind(error: Exception) -> Kind:
    return next(KINDS[family] for family in type(error).__mro__ if family in KINDS)


def _headers(error: errors.LocalMomentsError) -> dict[str, str]:
    headers = {"www-authenticate": "Bearer"} if isinstance(error, errors.NoKeyError) else {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    return headers


def _http_kind(error: HTTPException) -> Kind:
    phrase = HTTPStatus(error.status_code).phrase
    return Kind(error.status_code, phrase.lower().replace(" ", "-"), phrase)


def _http_detail(error: HTTPException, scope: Scope) -> str:
    """Say more than Starlette, whose detail only repeats the status."""
    path, method = scope["path"][:200], scope["method"]
    details = {404: f"Nothing is at {path!r}.", 405: f"{path!r} does not support {method}."}
    return details.get(error.status_code, error.detail)


def _list_methods(scope: Scope) -> str:
    """List the methods of every route at this path; Starlette lists those of the first."""
    path = getattr(scope.get("route"), "path", None)
    routes = [route for route in scope["app"].routes if route.path == path]
    methods = {method for route in routes for method in getattr(route, "methods", ())}  # no mounts
    return ", ".join(sorted(methods))


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


def _respond(
    kind: Kind, detail: str, scope: Scope, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    # The body of these requests was not read to its end, so the connection cannot be reused.
    closing = {"connection": "close"} if kind.status in (408, 413) else {}
    content = orjson.dumps(_fields(kind, detail, scope, **more))
    return Response(content, kind.status, {**(headers or {}), **closing}, media_type=PROBLEM)


def validate(model: type[M], fields: Mapping[str, Any]) -> M:
    """Check the fields of a JSON body; raise InputError with one sentence about all faults."""
    for part in (fields, *fields.values()):
        if isinstance(part, dict) and len(part) > MAX_FIELDS:
            raise errors.InputError(f"An object has {len(part)} fields; {MAX_FIELDS} are allowed.")
    try:
        return model.model_validate(fields, strict=True)
    except ValidationError as error:
        faults = _list_faults(error.errors(include_url=False, include_context=False))
        raise errors.InputError(_join_faults(faults)) from None


def _list_faults(found: Sequence[Any]) -> list[dict[str, str]]:
    return [{"field": _name_field(f["loc"]), "message": _describe_fault(f)} for f in found]


def _join_faults(faults: Sequence[Mapping[str, str]]) -> str:
    sentences = dict.fromkeys(f"{f['field']}: {f['message']}" for f in faults[:5])
    return "; ".join(sentences) + "."


class _ShortRepr(reprlib.Repr):
    """Write at most 60 characters of a value, which may be megabytes long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring = 1, 60


def _name_field(location: Sequence[str | int]) -> str:
    """Name a field as the client wrote it."""
    words = [str(part) for part in location if not PYDANTIC_PARTS.match(str(part))]
    return ascii(".".join(words))[1:-1][:100] or "body"


def _describe_fault(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "there is no such parameter"
    given = _ShortRepr().repr(fault.get("input")).encode("ascii", "backslashreplace").decode()
    return f"{fault['msg'].lower()} (got {given if len(given) <= 60 else given[:60] + '...'})"
