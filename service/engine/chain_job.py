"""The job that walks a chain: every step takes one pass or several.

Samples wait in the job until the event loop fetches them. The job pauses while `max_unfetched`
samples wait, so a slow reader holds up only its own chain and uses little memory.
"""

import asyncio
import math
import threading
from dataclasses import dataclass

from localmoments.arrays import Arrays, Floats
from localmoments.chain import step_noise, take_step
from localmoments.chain_state import Emission, Position, Step, Transition, check_bounds
from localmoments.graph_calls import Call
from localmoments.model import Model
from service.engine.batcher import Batcher
from service.engine.job import Job, Next


@dataclass(frozen=True)
class StepRange:
    """The steps of one call on a chain, and which of them it samples.

    The call samples each step t in (from_step, to_step] where t - burn_in is a positive multiple
    of `thin`. So the samples of consecutive calls are those of one long call.
    """

    from_step: int
    to_step: int
    burn_in: int = 0
    thin: int = 1
    emit: Emission = "mean"  # the mean of a step, or the noisy state

    def is_sampled(self, step: int) -> bool:
        after = step - self.burn_in
        return step > self.from_step and after > 0 and after % self.thin == 0

    @property
    def samples(self) -> int:
        """The number of samples."""
        before = max(0, self.from_step - self.burn_in) // self.thin
        return max(0, self.to_step - self.burn_in) // self.thin - before


class ChainJob(Job):
    """Walk a chain to `steps.to_step`.

    The event loop calls the constructor, `start`, `wait_for_news`, `wait_until_done`, `fetch` and
    `stop`; the batcher's thread calls the rest.

    Args:
        state: the walkers' state at `step`; (W, n).
        step: `steps.from_step`, or an earlier step from which the job walks there first.
        steps: where to walk and what to sample.
        max_unfetched: pause while this many samples wait. If infinite, the job does not report
            samples one by one, only its end.
    """

    def __init__(
        self,
        batcher: Batcher,
        model: Model,
        transition: Transition,
        state: Floats,
        step: int,
        steps: StepRange,
        max_unfetched: float = math.inf,
    ) -> None:
        super().__init__(model, model.manifest.kernels[transition.kernel].graph, len(state))
        self.can_prepare = transition.is_plain  # other steps draw their noise as they go
        self.state, self.step = state, step  # the newest
        self.from_state: Floats | None = None  # at steps.from_step, if the job walked to it
        self.sampled_state: tuple[int, Floats] | None = None  # step and state of the last sample
        self.accepted = 0  # Metropolis proposals, over all walkers and steps
        self.error: Exception | None = None
        self.is_done = False
        self._batcher, self._transition = batcher, transition
        self._first_step, self._steps, self._max_unfetched = step, steps, max_unfetched
        self._noise: Floats | None = None  # of the next step, drawn ahead by `prepare`
        self._current_step = step  # the one under way
        self._calls: Step | None = None  # generator of the graph calls of that step
        self._call: Call | None = None  # the next of them
        self._is_paused = False
        self._samples: list[tuple[int, Floats]] = []  # not fetched yet
        self._lock = threading.Lock()  # guards _samples, _is_paused and cancelled
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    @property
    def row_steps(self) -> int:
        """Walkers × steps so far."""
        return self.rows * (self.step - self._first_step)

    def start(self) -> None:
        """Queue the job, or finish at once if there is no step to take."""
        if self.step >= self._steps.to_step:
            self._mark_done()
            return
        try:
            if not self._transition.is_plain:
                self._begin_step()  # the first call decides which queue the job waits in
        except Exception as error:  # the first proposal is out of bounds
            self.error = error
            self._mark_done()
            return
        self._batcher.add(self)

    async def wait_for_news(self) -> None:
        """Wait until there is a sample to fetch or the job is done."""
        await self._news.wait()
        if not self.is_done:
            self._news.clear()

    async def wait_until_done(self) -> None:
        while not self.is_done:
            await self.wait_for_news()

    def fetch(self) -> list[tuple[int, Floats]]:
        """Return (step, z (W, d)) of the samples since the last fetch; resume a paused job."""
        with self._lock:
            samples, self._samples = self._samples, []
            was_paused, self._is_paused = self._is_paused, False
        if was_paused:
            self._batcher.resume(self)
        return samples

    def stop(self) -> None:
        """Stop before the next step. Call this from the event loop, never from a signal handler:
        the interrupted code may hold the lock."""
        with self._lock:
            self.cancelled = True
            was_paused, self._is_paused = self._is_paused, False
        if was_paused:
            self._batcher.resume(self)  # which drops it

    def make_inputs(self) -> Arrays:
        if self._call is None:
            self._begin_step()
        assert self._call is not None
        return self._call.inputs

    def _begin_step(self) -> None:
        noise, self._noise, self._current_step = self._noise, None, self.step
        self._calls = take_step(self.model, self._transition, self.state, self.step, noise)
        self._set_call(next(self._calls))

    def _set_call(self, call: Call) -> None:
        self._call, self.graph = call, call.graph
        if not self._transition.is_plain:  # such a step calls several graphs
            shapes = tuple((name, array.shape[1:]) for name, array in call.inputs.items())
            self.batch_key = (id(self.model), call.graph, ("chains", shapes))

    def prepare(self) -> None:
        """Draw the noise of the next step, which depends only on seed and step."""
        next_step = self._current_step + 1
        if next_step < self._steps.to_step:
            self._noise = step_noise(self.model, self._transition, self.rows, next_step)

    def compute(self, inputs: Arrays, first_row: int) -> Arrays:
        # One check for all chains of the pass. If it fails, the batcher runs each chain alone, and
        # only the diverged one fails.
        outputs = super().compute(inputs, first_row)
        check_bounds(self.step + 1, *outputs.values())
        return outputs

    def take_outputs(self, outputs: Arrays) -> Next:
        assert self._calls is not None
        try:
            self._set_call(self._calls.send(outputs))
        except StopIteration as end:
            return self._take_position(end.value)
        return Next.PASS  # the step needs another call

    def _take_position(self, position: Position) -> Next:
        """Store the position after a step, and say what comes next."""
        self.state, self.step, self._call = position.state, position.step, None
        self.accepted += position.accepted
        self._batcher.chain_row_steps += self.rows
        with self._lock:
            self._record(position)  # before the next step, which may fail
        if self.step >= self._steps.to_step:
            return Next.END
        if not self._transition.is_plain:
            self._begin_step()  # its first call decides which queue the job waits in
        with self._lock:
            is_full = len(self._samples) >= self._max_unfetched
            self._is_paused = is_full and not self.cancelled
            following = Next.PAUSE if self._is_paused else Next.PASS
            has_news = bool(self._samples) and self._max_unfetched < math.inf
        if has_news:
            self.notifier.post(self._loop, self._news.set)
        return following

    def _record(self, position: Position) -> None:
        # Copies, because the arrays are views that would keep the whole batch in memory.
        if position.step == self._steps.from_step:
            self.from_state = position.state.copy()
        if self._steps.is_sampled(position.step):
            z = position.noisy if self._steps.emit == "noisy" else position.mean
            self._samples.append((position.step, z.copy()))
            self.sampled_state = position.step, position.state.copy()

    def finish(self, error: Exception | None) -> None:
        self.error = error
        self.notifier.post(self._loop, self._mark_done)

    def _mark_done(self) -> None:
        self.is_done = True
        self._news.set()
