"""Ctrl-C and SIGTERM: the loop finishes its step, saves, and says how to go on.

Elsewhere they are a KeyboardInterrupt, except inside libraries that would lose one.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """Ctrl-C or SIGTERM arrived; the run was saved."""


class Stop:
    """Turns signals into a question that the loop asks after every step."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    @contextmanager
    def listening(self) -> Iterator["Stop"]:
        before = {s: signal.signal(s, self) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """A signal within the block is a KeyboardInterrupt at its end.

    torch's exporter wraps the exceptions that it sees in its own, one that is raised in a weak
    reference's callback or a finaliser is printed and forgotten, and some imports abort at one.
    """
    with Stop().listening() as stop:
        yield
    if stop.asked:
        raise KeyboardInterrupt
