"""Ctrl-C and SIGTERM: the loop finishes its step, saves, and says how to go on.

Elsewhere they are a KeyboardInterrupt. One that is raised in a weak reference's callback or in a
finaliser is printed and forgotten, and where Python does what, nobody knows; so it is remembered,
and asked for again before anything is kept.
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


class Interrupt(Stop):
    """A KeyboardInterrupt at once, and again where it was lost."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        super().__call__(number, frame)
        raise KeyboardInterrupt

    def check(self) -> None:
        if self.asked:
            raise KeyboardInterrupt


INTERRUPT = Interrupt()


def interruptible() -> None:
    """From now on, for the whole process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, INTERRUPT)


@contextmanager
def held_back() -> Iterator[None]:
    """A signal within the block is a KeyboardInterrupt at its end.

    torch's exporter says in many lines that it failed, and some imports abort.
    """
    with Stop().listening() as stop:
        yield
    if stop.asked:
        raise KeyboardInterrupt
