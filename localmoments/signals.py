"""Ctrl-C and SIGTERM around code that must not be interrupted by an exception."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGINT)  # the signals that end a process


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `handler` for both signals during the block; restore the old handlers after it."""
    before = {number: signal.signal(number, handler) for number in ENDS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def delay_signals() -> Iterator[None]:
    """Deliver signals that arrive during the block at its end, to the handler from before.

    An exception during the import of torch or onnxruntime can abort the process or leave the
    module half imported, and torch's exporter turns it into a long error of its own. Blocking the
    signals would not be enough, because another thread of the process would receive them.
    """
    arrived: list[int] = []
    with handle_signals(lambda number, frame: arrived.append(number)):
        yield
    for number in arrived[:1]:
        signal.raise_signal(number)
