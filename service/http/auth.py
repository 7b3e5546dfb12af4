"""Who calls: `Reader`, `Sampler` and `Operator` give a handler its caller, or refuse the request.

They are decided before a handler runs, and so before a body is read. Where no file of keys is
named, everyone may do everything.
"""

import hmac
from collections.abc import Callable, Sequence
from hashlib import sha256
from time import monotonic
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.datastructures import Headers

from localmoments.errors import NoKeyError, ScopeError
from service.caller import ANYONE, Caller, charge_nothing
from service.http.dependencies import problem_responses
from service.http.keys import Key, Scope
from service.http.rate_limits import Allowance, Clock

SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


class Holder:
    """Someone with a key, and what is left of their minute."""

    def __init__(self, key: Key, clock: Clock) -> None:
        self.digest, self._scopes = key.digest, key.scopes
        self._requests = _charge(key.name, "requests", key.requests_per_minute, clock)
        work = _charge(key.name, "row-steps", key.row_steps_per_minute, clock)
        self.caller = Caller(key.name, sees_all="admin" in key.scopes, charge=work)

    def admit(self, scope: Scope) -> Caller:
        self._requests(1)
        if scope not in self._scopes:
            raise ScopeError(
                f"The key {self.caller.name!r} has not the scope {scope!r} that this needs.",
                missing_scope=scope,
            )
        return self.caller


def _charge(key: str, things: str, a_minute: int | None, clock: Clock) -> Callable[[int], None]:
    return charge_nothing if a_minute is None else Allowance(key, things, a_minute, clock).charge


class Keyring:
    """All keys that open something."""

    def __init__(self, keys: Sequence[Key], clock: Clock = monotonic) -> None:
        self._holders = [Holder(key, clock) for key in keys]

    def holder(self, headers: Headers) -> Holder:
        """Every key is compared, whichever fits, so that the time taken tells nothing."""
        digest = sha256(_secret(headers)).digest()
        fitting = [h for h in self._holders if hmac.compare_digest(h.digest, digest)]
        if not fitting:
            raise NoKeyError("The API key is not known.")
        return fitting[0]


def _secret(headers: Headers) -> bytes:
    """X-API-Key wins, since a proxy may use Authorization for itself."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    secret = headers.get("x-api-key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    if not secret:
        raise NoKeyError(
            "An API key is needed: send it as `Authorization: Bearer ...` or as `X-API-Key: ...`."
        )
    return secret.encode("latin-1")  # the bytes that were sent


class Needs(SecurityBase):
    """A dependency that admits callers of one scope; FastAPI lists it as a route's security."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.model = HTTPBearer()
        self.scheme_name = scope  # until `describe` puts what clients must know in its place

    async def __call__(self, request: Request) -> Caller:
        keyring: Keyring | None = request.app.state.keyring
        if keyring is None:
            return ANYONE
        holder = keyring.holder(request.headers)
        request.state.caller = holder.caller.name  # for the log
        return holder.admit(self.scope)


reader, sampler = Needs("read"), Needs("sample")

Reader = Annotated[Caller, Depends(reader)]
Sampler = Annotated[Caller, Depends(sampler)]
Operator = Annotated[Caller, Depends(Needs("admin"))]


def describe(schema: dict[str, Any], keys: bool) -> None:
    """OpenAPI: where there are keys, guarded operations say which they take and how they refuse."""
    schema["components"].pop("securitySchemes", None)
    if keys:
        schema["components"]["securitySchemes"] = SCHEMES
    for operation in (each for path in schema["paths"].values() for each in path.values()):
        needs = operation.pop("security", None)
        if needs and keys:
            operation["security"] = [{scheme: [*needs[0]]} for scheme in SCHEMES]
            refusals = problem_responses(401, 403, 429)
            operation["responses"] |= {str(status): said for status, said in refusals.items()}
        elif needs:
            for status in ("401", "403"):
                operation["responses"].pop(status, None)
