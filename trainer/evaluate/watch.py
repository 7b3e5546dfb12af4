"""What a person sees while figures are made: a bar for each long part, or a line where there is no
terminal."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from tqdm import tqdm

from trainer.progress import clock

Tick = Callable[[int], None]


class Watch:
    """Parts of a long piece of work, one after the other; silent without a stream."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream

    @contextlib.contextmanager
    def part(self, label: str, total: int | None = None) -> Iterator[Tick]:
        """`total` counts what ticks count; the number in a tick is how much was done."""
        if self.stream is None:
            yield lambda count: None
        elif self.stream.isatty():
            with tqdm(total=total, desc=label, file=self.stream, dynamic_ncols=True,
                      unit_scale=True, leave=True) as bar:  # fmt: skip

                def advance(count: int) -> None:
                    bar.update(count)

                yield advance
        else:
            began = time.monotonic()
            yield lambda count: None
            print(f"{label}: {clock(time.monotonic() - began)}", file=self.stream, flush=True)
