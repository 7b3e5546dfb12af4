"""Progress of long work: a bar on a terminal, plain lines elsewhere.

`fit` shows rate, loss and time left with a `Progress`. `evaluate` shows one bar, or one line with
the time taken, for each of its steps with `track`.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from tqdm import tqdm

LINE_SECONDS = 10.0

Advance = Callable[[int], None]  # call it with the amount of work done since the last call


class Progress:
    """Show how much of a long piece of work is done.

    Args:
        label: printed before the figures.
        total: the amount of work, in `unit`; None if it is unknown.
        done: work done before, by a run that is resumed. It does not count towards the rate.
        stream: where to print; standard error by default.
    """

    def __init__(
        self, label: str, total: int | None, done: int = 0, stream: TextIO | None = None,
        unit: str = "rows",
    ) -> None:  # fmt: skip
        stream = stream or sys.stderr
        self.label, self.total, self.done, self.stream = label, total, done, stream
        self.unit = unit
        self._began, self._first, self._spoke = time.monotonic(), done, time.monotonic()
        self._bar: Any = None
        self._loss: float | None = None
        if stream.isatty():
            self._bar = tqdm(
                total=total, initial=done, desc=label, unit=unit, unit_scale=True,
                file=stream, dynamic_ncols=True, leave=True,
            )  # fmt: skip

    def advance(self, count: int, loss: float | None = None) -> None:
        """Add `count` to the work done; `loss` is shown next to it."""
        self.done, self._loss = self.done + count, loss
        if self._bar is not None:
            self._bar.update(count)
            if loss is not None and time.monotonic() - self._spoke > 0.2:
                self._spoke = time.monotonic()
                self._bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
        elif self.total is not None and time.monotonic() - self._spoke >= LINE_SECONDS:
            self._print(self.line())

    def line(self) -> str:
        """`fit mnist-dae: 42 %, 9,120 rows/s, loss 31.2, 1:05 left`"""
        rate, total = self.rate(), self.total or self.done
        left = (total - self.done) / rate if rate > 0 else 0.0
        loss = "" if self._loss is None else f"loss {self._loss:.4g}, "
        return (
            f"{self.label}: {100 * self.done / max(1, total):.0f} %, {rate:,.0f} {self.unit}/s, "
            f"{loss}{format_duration(left)} left"
        )

    def rate(self) -> float:
        """Work done per second by this process."""
        elapsed = time.monotonic() - self._began
        return (self.done - self._first) / elapsed if elapsed > 0 else 0.0

    def close(self) -> None:
        """Print the last line, or finish the bar."""
        if self._bar is not None:
            self._bar.close()
        elif self.done > self._first:
            self._print(self.line())

    def close_with_time(self) -> None:
        """Print how long the work took, or finish the bar."""
        if self._bar is not None:
            self._bar.close()
        else:
            self._print(f"{self.label}: {format_duration(time.monotonic() - self._began)}")

    def _print(self, line: str) -> None:
        self._spoke = time.monotonic()
        print(line, file=self.stream, flush=True)


@contextlib.contextmanager
def track(stream: TextIO | None, label: str, total: int | None = None) -> Iterator[Advance]:
    """Show the progress of the block; nothing where `stream` is None.

    Example:
        >>> with track(sys.stdout, "chains", 3) as advance:
        ...     for _ in range(3):
        ...         advance(1)
        chains: 0:00
    """
    if stream is None:
        yield lambda count: None
        return
    progress = Progress(label, total, stream=stream, unit="it")
    try:
        yield progress.advance
    finally:
        progress.close_with_time()


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds: `1:05`, `1:00:00`."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
