"""Ctrl-C and SIGTERM: the loop finishes its step, saves, and says how to go on.

Elsewhere they are a KeyboardInterrupt. One that is raised in a weak reference's callback or in a
finaliser is printed and forgotten, and where Python does what, nobody knows; so it is remembered,
and asked for again before anything is kept.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from localmoments.signals import ENDS, handled_by


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
        with handled_by(self):
            yield self


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
    for number in ENDS:
        signal.signal(number, INTERRUPT)
