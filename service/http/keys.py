"""The keys file: the API keys with their scopes and rate limits, as TOML.

The file holds SHA-256 digests, so that reading it does not let anyone call the service. A plain
digest is enough because a secret is 32 random bytes and cannot be guessed. docs/keys.md shows a
file.
"""

import hashlib
import re
import secrets
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localmoments.errors import SettingsError

Scope = Literal["read", "sample", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
NAME = r"[a-z0-9._-]{1,64}"

T = TypeVar("T")
Limit = Annotated[int, Field(gt=0, le=10**15, strict=True)]


class Key(BaseModel):
    """One `[[key]]` table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    requests_per_minute: Limit | None = None
    row_steps_per_minute: Limit | None = None

    @property
    def digest(self) -> bytes:
        return bytes.fromhex(self.sha256)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: list[Key] = []


def read_keys(path: Path | None) -> Sequence[Key]:
    """Read a keys file; raise SettingsError if it is not valid. No path means no keys."""
    if path is None:
        return ()
    try:
        keys = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).key
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        faults = "; ".join(map(_describe_fault, error.errors()))
        raise SettingsError(f"{path} is not a valid keys file: {faults}.") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise SettingsError(f"{path} is not valid TOML: {error}.") from None
    _check_keys(path, keys)
    return keys


def _describe_fault(fault: Any) -> str:
    """Say where and what, but not the value: it may be a secret in the wrong place."""
    _, *place = fault["loc"]
    where = f"key {place[0] + 1}: " if place else ""
    field = ".".join(map(str, place[1:] or fault["loc"][:1]))
    message = "there is no such field" if fault["type"] == "extra_forbidden" else fault["msg"]
    return f"{where}{field}: {message[0].lower()}{message[1:]}"


def _check_keys(path: Path, keys: Sequence[Key]) -> None:
    if not keys:
        raise SettingsError(f"{path} contains no key. Create one with `localmoments key NAME`.")
    if name := _find_duplicate(key.name for key in keys):
        raise SettingsError(f"{path} has two keys named {name!r}.")
    if digest := _find_duplicate(key.digest for key in keys):
        first, second = [key.name for key in keys if key.digest == digest][:2]
        raise SettingsError(f"{path} has the same sha256 for {first!r} and {second!r}.")


def _find_duplicate(values: Iterable[T]) -> T | None:
    return next((value for value, count in Counter(values).items() if count > 1), None)


def new_key(name: str, scopes: Sequence[Scope]) -> tuple[str, str]:
    """Return a new secret and its entry for the keys file."""
    if not re.fullmatch(NAME, name):
        raise SettingsError(f"A key's name may contain a-z, 0-9, '.', '_' and '-'; got {name!r}.")
    secret = secrets.token_urlsafe(32)
    sha256 = hashlib.sha256(secret.encode()).hexdigest()
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    return secret, (
        f'[[key]]\nname = "{name}"\nsha256 = "{sha256}"\nscopes = [{listed}]\n'
        "# requests_per_minute = 600\n# row_steps_per_minute = 1000000\n"
    )
