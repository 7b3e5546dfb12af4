"""API keys: `Reader`, `Sampler` and `Operator` give a handler its caller, or refuse the request.

The key is checked before the handler runs, and so before the body is read. Without a keys file,
every client may do everything.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from time import monotonic
from typing import Annotated

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.datastructures import Headers

from localmoments.errors import NoKeyError, ScopeError
from service.caller import ANYONE, Caller, charge_nothing
from service.http.keys import Key, Scope
from service.http.rate_limits import Clock, RateLimit


class KeyHolder:
    """The owner of a key, with the state of its rate limits."""

    def __init__(self, key: Key, clock: Clock) -> None:
        self._scopes = key.scopes
        self._charge_request = _limit(key.name, "requests", key.requests_per_minute, clock)
        charge_work = _limit(key.name, "row-steps", key.row_steps_per_minute, clock)
        self.caller = Caller(key.name, sees_all="admin" in key.scopes, charge=charge_work)

    def admit(self, scope: Scope) -> Caller:
        """Count the request and check its scope; raise RateError or ScopeError."""
        self._charge_request(1)
        if scope not in self._scopes:
            raise ScopeError(
                f"The key {self.caller.name!r} lacks the scope {scope!r}, which this needs.",
                missing_scope=scope,
            )
        return self.caller


def _limit(key: str, unit: str, per_minute: int | None, clock: Clock) -> Callable[[int], None]:
    return charge_nothing if per_minute is None else RateLimit(key, unit, per_minute, clock).charge


class Keyring:
    """All keys, found by the digest of the secret.

    A lookup by digest is safe against timing attacks: a client cannot choose the digest of what it
    sends, so the time that a comparison takes says nothing about a stored digest.
    """

    def __init__(self, keys: Sequence[Key], clock: Clock = monotonic) -> None:
        self._holders = {key.digest: KeyHolder(key, clock) for key in keys}

    def find(self, headers: Headers) -> KeyHolder:
        """Return the holder of the key in these headers; raise NoKeyError if there is none."""
        holder = self._holders.get(sha256(_read_secret(headers)).digest())
        if holder is None:
            raise NoKeyError("The API key is unknown.")
        return holder


def _read_secret(headers: Headers) -> bytes:
    """Read X-API-Key first, because a proxy may use Authorization for itself."""
    secret = headers.get("x-api-key")
    if not secret:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        secret = bearer.strip() if scheme.lower() == "bearer" else ""
    if not secret:
        raise NoKeyError(
            "An API key is needed. Send it as `Authorization: Bearer ...` or `X-API-Key: ...`."
        )
    return secret.encode("latin-1")  # the bytes that were sent


class RequireScope(SecurityBase):
    """A dependency that admits callers with one scope; FastAPI lists it as a route's security."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.model = HTTPBearer()
        self.scheme_name = scope  # service.http.openapi replaces it by the real schemes

    async def __call__(self, request: Request) -> Caller:
        keyring: Keyring | None = request.app.state.keyring
        if keyring is None:
            return ANYONE
        holder = keyring.find(request.headers)
        request.state.caller = holder.caller.name  # for the log
        return holder.admit(self.scope)


Reader = Annotated[Caller, Depends(RequireScope("read"))]
Sampler = Annotated[Caller, Depends(RequireScope("sample"))]
Operator = Annotated[Caller, Depends(RequireScope("admin"))]
