"""A chain on the batcher: a step takes a pass or several, and positions to keep wait until they are
fetched.

Its methods run on the batcher's thread, but for the constructor, `begin`, `changed`, `fetch` and
`halt`, which are the event loop's. It pauses when `ahead` positions were kept and not fetched, so
a slow reader holds up its own chain and nobody's memory.
"""

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from localmoments.arrays import Floats
from localmoments.chain import step_noise, take_step
from localmoments.model import Arrays, Model
from localmoments.transition import Call, Position, Step, Transition, check_bounds
from service.engine.batcher import Batcher
from service.engine.job import Job, Next


@dataclass(frozen=True)
class JobRange:
    """From a state at a step to a later step, and which positions on the way to keep."""

    state: Floats  # (W, n)
    step: int
    to_step: int
    keeps: Callable[[int], bool] = lambda step: False
    noisy: bool = False  # what to keep: the noisy sample, or the mean
    mark: int = -1  # a step whose state is wanted as well
    ahead: float = math.inf  # positions that may wait to be fetched; infinite: no word of each

    @property
    def tells(self) -> bool:
        return self.ahead < math.inf


class ChainJob(Job):
    """One leg of a chain; `state` and `step` are where it has come to."""

    def __init__(self, batcher: Batcher, model: Model, walk: Transition, leg: JobRange) -> None:
        graph = model.manifest.kernels[walk.kernel].graph
        super().__init__(model, graph, len(leg.state))
        self.prepares = walk.is_plain  # the noise of the next step; others draw it as they go
        self.accepted = 0  # proposals of a Metropolis correction, over walkers and steps
        self.state, self.step = leg.state, leg.step
        self.error: Exception | None = None
        self.done = False
        self._batcher, self._walk, self._leg = batcher, walk, leg
        self._noise: Floats | None = None  # of the next step, where it was drawn ahead
        self._underway = leg.step
        self._calls: Step | None = None  # of the step under way
        self._call: Call | None = None  # the one to make next
        self._paused = False
        self._kept: list[tuple[int, Floats]] = []
        self.latest: tuple[int, Floats] | None = None  # the step and state of the last one kept
        self.marked: Floats | None = None  # the state at the marked step
        self._lock = threading.Lock()  # of what was kept and whether it pauses
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def begin(self) -> None:
        if self.step >= self._leg.to_step:
            return self._finish()
        try:
            if not self._walk.is_plain:
                self._begin_step()
        except Exception as error:  # its first draw is out of bounds; `error` says so to the call
            self.error = error
            return self._finish()
        self._batcher.submit(self)

    @property
    def row_steps(self) -> int:
        return self.rows * (self.step - self._leg.step)

    async def changed(self) -> None:
        """Returns when there is something to fetch, or it is done."""
        await self._news.wait()
        if not self.done:
            self._news.clear()

    async def ended(self) -> None:
        while not self.done:
            await self.changed()

    def fetch(self) -> list[tuple[int, Floats]]:
        """What was kept since the last time; a chain that had paused for it goes on."""
        with self._lock:
            kept, self._kept = self._kept, []
            paused, self._paused = self._paused, False
        if paused:
            self._batcher.resume(self)
        return kept

    def halt(self) -> None:
        """Stop before the next step."""
        with self._lock:
            self.over = True
            paused, self._paused = self._paused, False
        if paused:
            self._batcher.resume(self)

    def inputs(self) -> Arrays:
        if self._call is None:
            self._begin_step()
        assert self._call is not None
        return self._call.inputs

    def _begin_step(self) -> None:
        noise, self._noise, self._underway = self._noise, None, self.step
        self._calls = take_step(self.model, self._walk, self.state, self.step, noise)
        self._ask(next(self._calls))

    def _ask(self, call: Call) -> None:
        """The next call, which decides what may share its pass."""
        self._call, self.graph = call, call.graph
        if not self._walk.is_plain:
            shapes = tuple((name, array.shape[1:]) for name, array in call.inputs.items())
            self.key = (id(self.model), call.graph, ("chains", shapes))

    def prepare(self) -> None:
        """The next step's noise, which depends on nothing but the seed and the step."""
        if (following := self._underway + 1) < self._leg.to_step:
            self._noise = step_noise(self.model, self._walk, self.rows, following)

    def compute(self, inputs: Arrays, first: int) -> Arrays:
        """Bounds of all chains of a pass at once: one by one they took as long as all else here.
        Where one is out of them the batcher runs each alone, and only that one fails."""
        outputs = super().compute(inputs, first)
        check_bounds(self.step + 1, *outputs.values())
        return outputs

    def take(self, outputs: Arrays) -> Next:
        assert self._calls is not None
        try:
            self._ask(self._calls.send(outputs))
        except StopIteration as end:
            return self._arrive(end.value)
        return Next.PASS  # another call of the same step

    def _arrive(self, position: Position) -> Next:
        self.state, self.step, self._call = position.state, position.step, None
        self.accepted += position.accepted
        with self._lock:
            self._note(position)  # before the next step, which may fail
        if not self._walk.is_plain and self.step < self._leg.to_step:
            self._begin_step()  # in which lane it waits depends on its first call
        with self._lock:
            full = len(self._kept) >= self._leg.ahead
            self._paused = full and not self.over and self.step < self._leg.to_step
            after = Next.PAUSE if self._paused else Next.PASS
            news = bool(self._kept) and self._leg.tells
        if news:
            self.mail.post(self._loop, self._news.set)
        return after if self.step < self._leg.to_step else Next.END

    def _note(self, position: Position) -> None:
        """Copies, which keep no larger batch in memory."""
        if position.step == self._leg.mark:
            self.marked = position.state.copy()
        if self._leg.keeps(position.step):
            z = position.noisy if self._leg.noisy else position.mean
            self._kept.append((position.step, z.copy()))
            self.latest = position.step, position.state.copy()

    def end(self, error: Exception | None) -> None:
        self.error = error
        self.mail.post(self._loop, self._finish)

    def _finish(self) -> None:
        self.done = True
        self._news.set()
