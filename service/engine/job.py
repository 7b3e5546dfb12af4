"""What the batcher works on: rows for one graph, for one pass or for many."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import numpy as np

from localmoments.arrays import Named
from localmoments.errors import UnusableAnswerError
from localmoments.model import Model


class LoopNotifier:
    """Word from the batcher's thread to event loops, in one delivery a pass.

    To wake a loop gives the GIL away, and it may take milliseconds to come back.
    """

    def __init__(self) -> None:
        self._letters: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    def post(self, loop: asyncio.AbstractEventLoop, letter: Callable[[], None]) -> None:
        self._letters.append((loop, letter))

    def deliver(self) -> None:
        letters, self._letters = self._letters, []
        for loop in {loop for loop, _ in letters}:
            loop.call_soon_threadsafe(_read, [letter for to, letter in letters if to is loop])


def _read(letters: list[Callable[[], None]]) -> None:
    for letter in letters:
        letter()


class Next(Enum):
    """What follows a part of a pass."""

    PARTS = auto()  # other parts of the same pass
    PASS = auto()  # another pass
    PAUSE = auto()  # nothing, until the work is resumed
    END = auto()


@dataclass(frozen=True)
class Slice:
    """Some of a work's rows."""

    work: "Job"
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def is_last(self) -> bool:
        return self.stop == self.work.rows

    def inputs(self) -> Named:
        whole = self.work.pass_inputs()
        if self.rows == self.work.rows:
            return whole
        return {name: array[self.start : self.stop] for name, array in whole.items()}


class Job(ABC):
    """One caller's rows. All but the constructor runs on the batcher's thread."""

    prepares = False  # whether `prepare` does anything
    mail: LoopNotifier  # the batcher's

    def __init__(self, model: Model, graph: str, rows: int, shapes: object = None) -> None:
        self.model, self.graph, self.rows = model, graph, rows
        self.key = (id(model), graph, shapes)  # what may share a pass
        self.over = False  # nobody waits for it any more
        self.since = 0  # its place in the order of waiting
        self.begun = 0  # rows that this pass has taken
        self._inputs: Named | None = None
        self._outputs: list[Named] = []

    @abstractmethod
    def inputs(self) -> Named:
        """For the next pass; every array has `rows` rows."""

    def prepare(self) -> None:  # noqa: B027  # most have nothing to prepare
        """What can be made for the pass after this one while this one runs; on another thread."""

    def compute(self, inputs: Named, first: int) -> Named:
        """One pass for the rows of several works; `first` is the number of this one's first row."""
        return self.model.run(self.graph, **inputs)

    @abstractmethod
    def take(self, outputs: Named) -> Next:
        """A pass's answer, and what comes after it."""

    @abstractmethod
    def end(self, error: Exception | None) -> None:
        """Nothing more comes, and why, if it is not done."""

    def part(self, room: int) -> Slice:
        """The next rows of this pass."""
        start = self.begun
        self.begun = min(self.rows, start + room)
        return Slice(self, start, self.begun)

    def pass_inputs(self) -> Named:
        if self._inputs is None:
            self._inputs = self.inputs()
        return self._inputs

    def gathered(self, outputs: Named) -> Next:
        """What `take` says after the last part of a pass."""
        if self._outputs or len(next(iter(outputs.values()))) < self.rows:
            self._outputs.append(outputs)
            if self._missing():
                return Next.PARTS
            outputs, self._outputs = _whole(self._outputs), []
        self._inputs, self.begun = None, 0
        return self.take(outputs)

    def _missing(self) -> bool:
        return sum(len(next(iter(part.values()))) for part in self._outputs) < self.rows


def _whole(parts: list[Named]) -> Named:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class OneShot(Job):
    """One pass for one request."""

    def __init__(self, model: Model, graph: str, inputs: Named, together: object = None) -> None:
        """Works share a pass if their rows have the same shapes, and are to be taken `together`."""
        rows = len(next(iter(inputs.values())))
        shapes = tuple([(name, array.shape[1:]) for name, array in inputs.items()])
        super().__init__(model, graph, rows, (shapes, together))
        self._given = inputs
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Named] = self._loop.create_future()

    def inputs(self) -> Named:
        return self._given

    def take(self, outputs: Named) -> Next:
        if not all(np.isfinite(array).all() for array in outputs.values()):
            raise UnusableAnswerError(f"{self.model.manifest.reference} gave NaN or infinity.")
        self._found = outputs
        return Next.END

    def end(self, error: Exception | None) -> None:
        self.mail.post(self._loop, partial(self._tell, error))

    def _tell(self, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        elif self.over:
            self.answer.cancel()
        else:
            self.answer.set_result(self._found)
