"""Plain tables (from TOML) to frozen dataclasses, with a sentence for whatever does not fit."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from trainer.errors import RecipeError

T = TypeVar("T")


def build(cls: type[T], body: Any, at: str) -> T:
    """An instance of a dataclass from a table; `at` is the table's name, for messages."""
    if not isinstance(body, Mapping):
        raise RecipeError(f"{at or 'the recipe'} must be a table of settings.")
    hints = get_type_hints(cls)
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for key in body:
        if key not in names:
            raise _unknown(_join(at, key), names)
    for f in fields(cls):  # type: ignore[arg-type]
        if f.default is MISSING and f.default_factory is MISSING and f.name not in body:
            raise RecipeError(f"The setting {_join(at, f.name)} is missing.")
    return cls(**{k: _value(hints[k], v, _join(at, k)) for k, v in body.items()})


def _value(kind: Any, value: Any, at: str) -> Any:
    """The value as `kind`, or a sentence."""
    if is_dataclass(kind) and isinstance(kind, type):
        return build(kind, value, at)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value in arguments:
            return value
        raise RecipeError(f"{at} is {value!r}; it may be one of {', '.join(map(str, arguments))}.")
    if origin in (Union, types.UnionType):
        return _first_that_fits(arguments, value, at)
    if origin is tuple:
        return _tuple(arguments, value, at)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {str(k): _value(arguments[1], v, _join(at, str(k))) for k, v in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (int, str, bool, float) and type(value) is kind:  # a bool must not pass for an int
        return value
    raise RecipeError(f"{at} is {value!r}, but {_named(kind)} is wanted.")


def _first_that_fits(kinds: tuple[Any, ...], value: Any, at: str) -> Any:
    if type(value) in kinds:
        return value
    for kind in kinds:
        try:
            return _value(kind, value, at)
        except RecipeError:
            continue
    wanted = " or ".join(_named(k) for k in kinds if k is not type(None))
    raise RecipeError(f"{at} is {value!r}, but {wanted} is wanted.")


def _tuple(kinds: tuple[Any, ...], value: Any, at: str) -> tuple[Any, ...]:
    if isinstance(value, list | tuple):
        if kinds[-1] is Ellipsis:
            return tuple(_value(kinds[0], v, at) for v in value)
        if len(value) == len(kinds):
            return tuple(_value(k, v, at) for k, v in zip(kinds, value, strict=True))
    raise RecipeError(f"{at} is {value!r}, but {_named(tuple[kinds])} is wanted.")  # type: ignore[valid-type]


def _named(kind: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    if kind in words:
        return words[kind]
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        length = "" if inner[-1] is Ellipsis else f" of {len(inner)}"
        return f"a list{length}, each {_named(inner[0])}"
    return "a table" if get_origin(kind) is not None else str(kind)


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _unknown(key: str, known: list[str]) -> RecipeError:
    near = get_close_matches(key.rpartition(".")[2], known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
    return RecipeError(f"There is no setting {key}; {hint}")
