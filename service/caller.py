"""Who asks: what the use cases must know about a caller, however it was recognised."""

from collections.abc import Callable
from dataclasses import dataclass


def free(row_steps: int) -> None:
    """Where nobody counts, work costs nothing."""


@dataclass(frozen=True)
class Caller:
    """A caller sees only its own chains, and pays for its work before that begins."""

    name: str = ""  # of its API key; empty where there are none
    sees_all: bool = False  # every caller's chains
    charge: Callable[[int], None] = free  # row-steps; raises RateError, TooLargeError


ANYONE = Caller()
