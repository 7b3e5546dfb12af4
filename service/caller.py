"""The caller of a use case: whose chains it may see, and how its work is charged."""

from collections.abc import Callable
from dataclasses import dataclass


def charge_nothing(row_steps: int) -> None:
    """Charge callers without limits."""


@dataclass(frozen=True)
class Caller:
    """A caller sees only its own chains and is charged before its work starts."""

    name: str = ""  # of its API key; empty if the service has no keys
    sees_all: bool = False  # may use every caller's chains
    charge: Callable[[int], None] = charge_nothing  # row-steps; raises RateError, TooLargeError


ANYONE = Caller()
