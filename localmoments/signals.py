"""Ctrl-C and SIGTERM, where an exception in the midst of something would do harm."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Both within the block; as before after it."""
    before = {number: signal.signal(number, handler) for number in ENDS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def held_back() -> Iterator[None]:
    """What arrives within the block, arrives at its end, for whoever handled it before.

    An import of torch or onnxruntime may abort at an exception or fail with another, and torch's
    exporter says in many lines that it failed. (To block signals is not enough: another thread of
    the process would take them.)
    """
    arrived: list[int] = []
    with handled_by(lambda number, frame: arrived.append(number)):
        yield
    for number in arrived[:1]:
        signal.raise_signal(number)
