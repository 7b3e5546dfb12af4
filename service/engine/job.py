"""Jobs: the units of work that the batcher runs.

A job holds one caller's rows for a graph. The batcher runs it in one pass or in many; after each
pass the job says what comes `Next`. A pass may hold slices of several jobs.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Generic, TypeVar

import numpy as np

from localmoments.arrays import Named
from localmoments.graph_calls import check_finite
from localmoments.model import Model

T = TypeVar("T")


class LoopNotifier:
    """Send callbacks from the batcher's thread to event loops, once per pass.

    Waking a loop releases the GIL, and it can take milliseconds to get it back. So callbacks are
    collected with `post` and sent together with `deliver`.
    """

    def __init__(self) -> None:
        self._posted: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    def post(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        """Queue a callback for `loop` until the next `deliver`."""
        self._posted.append((loop, callback))

    def deliver(self) -> None:
        """Run all posted callbacks on their loops."""
        posted, self._posted = self._posted, []
        for loop in {loop for loop, _ in posted}:
            callbacks = [callback for target, callback in posted if target is loop]
            loop.call_soon_threadsafe(_run_all, callbacks)


def _run_all(callbacks: list[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()


class Next(Enum):
    """What a job does after a slice of it was computed."""

    SLICE = auto()  # wait for the other slices of this pass
    PASS = auto()  # run another pass
    PAUSE = auto()  # stay out of the queues until it is resumed
    END = auto()  # leave the batcher


@dataclass(frozen=True)
class Slice:
    """The rows of a job that go into one pass: start (inclusive) to stop (exclusive)."""

    job: "Job"
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def is_last(self) -> bool:
        return self.stop == self.job.rows

    def make_inputs(self) -> Named:
        """Return the graph's inputs for these rows."""
        inputs = self.job.get_inputs()
        if self.rows == self.job.rows:
            return inputs
        return {name: array[self.start : self.stop] for name, array in inputs.items()}


class Job(ABC):
    """One caller's rows for a graph.

    The event loop constructs a job and may set `cancelled`. The batcher's thread calls all methods
    except `prepare`, which runs on a third thread.

    Args:
        model: the model whose graph runs.
        graph: the graph's name in the manifest.
        rows: how many rows each pass has.
        shapes: jobs share a pass only if model, graph and `shapes` are equal.
    """

    can_prepare = False  # True if `prepare` does something
    notifier: LoopNotifier  # set by the batcher when the job is added

    def __init__(self, model: Model, graph: str, rows: int, shapes: object = None) -> None:
        self.model, self.graph, self.rows = model, graph, rows
        self.load = rows  # what the job counts for in the batcher's load, until it ends
        self.batch_key: object = (id(model), graph, shapes)
        self.cancelled = False  # the caller has left; drop the job before its next pass
        self.enqueued = 0  # place in the order of arrival, set by the batcher
        self._offset = 0  # rows of the current pass that are already in slices
        self._inputs: Named | None = None  # of the current pass
        self._outputs: list[Named] = []  # of the slices that are computed so far

    @abstractmethod
    def make_inputs(self) -> Named:
        """Return the inputs of the next pass; every array has `rows` rows."""

    def prepare(self) -> None:  # noqa: B027  # optional
        """Prepare the next pass while the current one runs. Called on another thread."""

    def compute(self, inputs: Named, first_row: int) -> Named:
        """Run one pass over the rows of all jobs that share it.

        Args:
            inputs: rows of this job, then rows of other jobs with the same `batch_key`.
            first_row: the number, within this job, of the first row in `inputs`.
        """
        return self.model.run(self.graph, **inputs)

    @abstractmethod
    def take_outputs(self, outputs: Named) -> Next:
        """Process the outputs of a whole pass and say what comes next."""

    @abstractmethod
    def finish(self, error: Exception | None) -> None:
        """Tell the caller that the job has ended: with an error, or done or cancelled (None)."""

    def next_slice(self, max_rows: int) -> Slice:
        """Return the next rows of the current pass, at most `max_rows`."""
        start = self._offset
        self._offset = min(self.rows, start + max_rows)
        return Slice(self, start, self._offset)

    def get_inputs(self) -> Named:
        """Return the inputs of the current pass. All slices of a pass share them."""
        if self._inputs is None:
            self._inputs = self.make_inputs()
        return self._inputs

    def take_slice_outputs(self, outputs: Named) -> Next:
        """Collect outputs of slices; after the last slice, pass them on to `take_outputs`."""
        if self._outputs or count_rows(outputs) < self.rows:
            self._outputs.append(outputs)
            if sum(map(count_rows, self._outputs)) < self.rows:
                return Next.SLICE
            outputs, self._outputs = concatenate(self._outputs), []
        self._inputs, self._offset = None, 0
        return self.take_outputs(outputs)


def count_rows(arrays: Named) -> int:
    """Return the number of rows that all of these arrays have."""
    return len(next(iter(arrays.values())))


def concatenate(slices: list[Named]) -> Named:
    """Join named arrays of several slices along the rows."""
    if len(slices) == 1:
        return slices[0]
    return {name: np.concatenate([each[name] for each in slices]) for name in slices[0]}


class ResultJob(Job, Generic[T]):
    """A job whose caller awaits `result`. A subclass sets `value` before the job ends."""

    value: T

    def __init__(self, model: Model, graph: str, rows: int, shapes: object = None) -> None:
        super().__init__(model, graph, rows, shapes)
        self.loop = asyncio.get_running_loop()
        self.result: asyncio.Future[T] = self.loop.create_future()

    def finish(self, error: Exception | None) -> None:
        self.notifier.post(self.loop, partial(self.set_result, error))

    def set_result(self, error: Exception | None) -> None:
        """Wake the caller, on the event loop."""
        if self.result.done():
            return
        if error is not None:
            self.result.set_exception(error)
        elif self.cancelled:
            self.result.cancel()
        else:
            self.result.set_result(self.value)


class OneShot(ResultJob[Named]):
    """A job of one pass, whose result is the outputs.

    Args:
        inputs: the graph's inputs; every array has the same number of rows.
        group: jobs with different groups do not share a pass.
    """

    def __init__(self, model: Model, graph: str, inputs: Named, group: object = None) -> None:
        shapes = tuple([(name, array.shape[1:]) for name, array in inputs.items()])
        super().__init__(model, graph, count_rows(inputs), (shapes, group))
        self._given_inputs = inputs

    def make_inputs(self) -> Named:
        return self._given_inputs

    def take_outputs(self, outputs: Named) -> Next:
        check_finite(self.model, outputs)
        self.value = outputs
        return Next.END
