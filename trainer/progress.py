"""Progress with rate, loss and time left: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, TextIO

from tqdm import tqdm

LINE_SECONDS = 10.0


class Progress:
    """How far a long piece of work has come; `unit` is what is counted, such as rows."""

    def __init__(self, label: str, total: int, done: int = 0, stream: TextIO | None = None) -> None:
        stream = stream or sys.stderr
        self.label, self.total, self.done, self.stream = label, total, done, stream
        self._began, self._first, self._spoke = time.monotonic(), done, time.monotonic()
        self._bar: Any = None
        self._loss = 0.0
        if stream.isatty():
            self._bar = tqdm(
                total=total, initial=done, desc=label, unit="rows", unit_scale=True,
                file=stream, dynamic_ncols=True, leave=True,
            )  # fmt: skip

    def advance(self, count: int, loss: float) -> None:
        self.done, self._loss = self.done + count, loss
        if self._bar is not None:
            self._bar.update(count)
            if time.monotonic() - self._spoke > 0.2:
                self._spoke = time.monotonic()
                self._bar.set_postfix_str(f"loss {loss:.4g}", refresh=False)
        elif time.monotonic() - self._spoke >= LINE_SECONDS:
            self._say()

    def line(self, loss: float) -> str:
        """`fit mnist-dae: 42 %, 9,120 rows/s, loss 31.2, 1:05 left`"""
        rate = self.rate()
        left = (self.total - self.done) / rate if rate > 0 else 0.0
        return (
            f"{self.label}: {100 * self.done / max(1, self.total):.0f} %, {rate:,.0f} rows/s, "
            f"loss {loss:.4g}, {clock(left)} left"
        )

    def rate(self) -> float:
        elapsed = time.monotonic() - self._began
        return (self.done - self._first) / elapsed if elapsed > 0 else 0.0

    def close(self) -> None:
        """The last word: where the work ended."""
        if self._bar is not None:
            self._bar.close()
        elif self.done > self._first:
            self._say()

    def _say(self) -> None:
        self._spoke = time.monotonic()
        print(self.line(self._loss), file=self.stream, flush=True)


def clock(seconds: float) -> str:
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"
