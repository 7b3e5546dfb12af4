"""Ctrl-C and SIGTERM in the trainer.

While a model is trained, `StopFlag` records the signal; the loop finishes its step, saves a
checkpoint and says how to continue. At other times `Interrupt` raises KeyboardInterrupt at once.
Python swallows a KeyboardInterrupt that is raised in a finaliser or a weakref callback, so the
handler also sets a flag, and `Interrupt.check` raises again before an artefact is published.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from localmoments.signals import ENDS, handle_signals


class Interrupted(Exception):
    """A signal stopped the training, and the run was saved; the message says how to continue."""


class StopFlag:
    """A signal handler that only records the signal; a loop checks `is_set` after every step."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.is_set = True

    @contextmanager
    def handle_signals(self) -> Iterator["StopFlag"]:
        """Handle Ctrl-C and SIGTERM during the block."""
        with handle_signals(self):
            yield self


class Interrupt(StopFlag):
    """A signal handler that raises KeyboardInterrupt and remembers that it did."""

    def __call__(self, number: int, frame: FrameType | None) -> None:
        super().__call__(number, frame)  # first the flag: Python may swallow the exception
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived."""
        if self.is_set:
            raise KeyboardInterrupt


INTERRUPT = Interrupt()


def install_interrupt_handler() -> None:
    """Handle Ctrl-C and SIGTERM with INTERRUPT for the rest of the process."""
    for number in ENDS:
        signal.signal(number, INTERRUPT)
