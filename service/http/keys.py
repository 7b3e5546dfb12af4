"""The file of API keys: who may call, for what, and how much.

It holds digests, so that whoever reads it can call nothing. A secret is 32 random bytes, which no
one guesses, so that a plain SHA-256 of it is enough. docs/keys.md shows a file.
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
    """One `[[key]]` of the file."""

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
    """All keys of a file, or one sentence that says what is wrong with it; no file, no keys."""
    if path is None:
        return ()
    try:
        keys = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).key
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError as error:
        faults = "; ".join(map(_fault, error.errors()))
        raise SettingsError(f"{path} is not a file of keys: {faults}.") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise SettingsError(f"{path} is not TOML: {error}.") from None
    _check(path, keys)
    return keys


def _fault(found: Any) -> str:
    """Where and what; never the value, which may be a secret that stands in the wrong place."""
    _, *place = found["loc"]
    where = f"key {place[0] + 1}: " if place else ""
    field = ".".join(map(str, place[1:] or found["loc"][:1]))
    said = "there is no such field" if found["type"] == "extra_forbidden" else found["msg"]
    return f"{where}{field}: {said[0].lower()}{said[1:]}"


def _check(path: Path, keys: Sequence[Key]) -> None:
    if not keys:
        raise SettingsError(f"{path} holds no key; `python -m service key NAME` makes one.")
    if name := _repeated(key.name for key in keys):
        raise SettingsError(f"{path} has two keys of the name {name!r}.")
    if digest := _repeated(key.digest for key in keys):
        first, second = [key.name for key in keys if key.digest == digest][:2]
        raise SettingsError(f"{path} has one sha256 for both {first!r} and {second!r}.")


def _repeated(values: Iterable[T]) -> T | None:
    return next((value for value, times in Counter(values).items() if times > 1), None)


def new_key(name: str, scopes: Sequence[Scope]) -> tuple[str, str]:
    """A fresh secret, and its entry for the file."""
    if not re.fullmatch(NAME, name):
        raise SettingsError(f"A key's name is made of a-z, 0-9, '.', '_' and '-', not {name!r}.")
    secret = secrets.token_urlsafe(32)
    sha256 = hashlib.sha256(secret.encode()).hexdigest()
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    return secret, (
        f'[[key]]\nname = "{name}"\nsha256 = "{sha256}"\nscopes = [{listed}]\n'
        "# requests_per_minute = 600\n# row_steps_per_minute = 1000000\n"
    )
