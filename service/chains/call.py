"""One call on a chain: the batcher walks it, and what it keeps is handed out once committed.

The walking runs ahead of the committing by a few samples at most. A commit takes whatever was kept
while the one before it was on its way, so a slow store makes commits fewer, not the chain slower
than it must be; and a caller that reads slowly holds the walking up, not the memory.
"""

import asyncio
import logging
import math
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import numpy as np

from localmoments.arrays import Floats, Reals
from localmoments.columns import Normaliser
from localmoments.errors import LocalMomentsError
from localmoments.model import Model
from service.chains.plan import Plan
from service.chains.spec import StepRange
from service.engine.chain_job import ChainJob, JobRange
from service.engine.executor import Executor
from service.store.chains import ChainStore, Lease, Record, Snapshot

log = logging.getLogger(__name__)

AHEAD = 8  # kept samples that may wait for their commit

Reason = Literal["gone", "draining", "lost", "late"]  # caller, service, lease, time


@dataclass(frozen=True)
class Sample:
    """What a chain emits at a step."""

    step: int
    z: Floats  # (W, d), in the model's units: half the size
    units: Normaliser

    @property
    def x(self) -> Reals:
        """In the units of the data; (W, d)."""
        return self.units.to_user(self.z)


@dataclass(frozen=True)
class Course:
    """Which steps a call walks and keeps: (step - burn_in) is a multiple of thin, and positive."""

    from_step: int
    to_step: int
    burn_in: int
    thin: int

    def keeps(self, step: int) -> bool:
        past = step - self.burn_in
        return step > self.from_step and past > 0 and past % self.thin == 0

    @property
    def kept(self) -> int:
        before = max(0, self.from_step - self.burn_in) // self.thin
        return max(0, self.to_step - self.burn_in) // self.thin - before


@dataclass
class Tally:
    """What all runs did, for the metrics."""

    row_steps: int = 0
    commits: int = 0
    conflicts: int = 0
    opened: int = 0


@dataclass(frozen=True)
class Means:
    """What a run works with."""

    store: ChainStore
    executor: Executor
    tally: Tally


class ChainCall:
    """Use as `async with run:`, then either `next()` until it is empty, or `all()` once."""

    def __init__(
        self,
        means: Means,
        model: Model,
        plan: Plan,
        record: Record,
        lease: Lease,
        course: Course,
        stretch: StepRange,
        running: set["ChainCall"],
    ) -> None:
        self.chain, self.plan, self.model, self.course = record.id, plan, model, course
        self.emit = stretch.emit or plan.emit
        self.streamed, self._seconds = stretch.streamed, stretch.seconds
        self.step = record.head.step  # the newest that is committed
        self.delivered = course.from_step  # the newest whose samples were handed out
        self.halted: Reason | None = None
        self.lease = lease
        self._means, self._running = means, running
        self._begun: ChainJob | None = None
        self._record = record
        self._base: Snapshot | None = None  # the one to commit with the next state
        self._failure: Exception | None = None  # of the lease
        self._late: asyncio.TimerHandle | None = None
        self._released = self._lost = False

    @property
    def _walking(self) -> ChainJob:
        assert self._begun is not None
        return self._begun

    @property
    def finished(self) -> bool:
        """The whole course was walked."""
        walking = self._walking
        return walking.done and walking.error is None and walking.step == self.course.to_step

    @property
    def row_steps(self) -> int:
        return self._walking.row_steps

    def diagnostics(self) -> dict[str, float]:
        """The acceptance rate, where there is a Metropolis correction."""
        if not self.plan.metropolis or not self.row_steps:
            return {}
        return {"acceptance": self._walking.accepted / self.row_steps}

    def halt(self, reason: Reason) -> None:
        """Stop before the next step; what was walked is committed."""
        self.halted = self.halted or reason
        self._walking.halt()

    def rest(self) -> dict[str, str | int]:
        """The call that goes on where this one ended, in the same way."""
        steps = self.course.to_step - max(self.delivered, self.course.burn_in)
        own: dict[str, str | int] = {"thin": self.course.thin, "emit": self.emit}
        own = {name: value for name, value in own.items() if value != getattr(self.plan, name)}
        return {"chain": self.chain, "from_step": self.delivered, "steps": steps, **own}

    def begin(self) -> None:
        """Walk from now on; who begins enters as well, or gives up."""
        start = self._nearest()
        if start is self._record.head and start.step > self._record.base.step:
            self._base = start
        self._begun = self._means.executor.walk(self.model, self.plan.walk, self._leg(start))

    def give_up(self) -> None:
        self._walking.halt()

    async def __aenter__(self) -> "ChainCall":
        if self._begun is None:
            self.begin()
        self._holding = asyncio.create_task(self._hold())
        if self._seconds is not None:
            self._late = asyncio.get_running_loop().call_later(self._seconds, self.halt, "late")
        self._running.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self._holding.cancel()
        if self._late is not None:
            self._late.cancel()
        self._walking.halt()
        try:
            await self._walking.ended()
            await self._let_go()
        finally:
            self._means.tally.row_steps += self.row_steps
            self._running.discard(self)

    async def next(self) -> list[Sample]:
        """Samples that are committed; empty when there are no more. Raises what went wrong."""
        while True:
            done = self._walking.done
            if samples := self._fetched():
                await self._commit(self._walking.latest)
                self.delivered = samples[-1].step
                return samples
            if done:
                await self._end()
                return []
            await self._walking.changed()

    async def all(self) -> list[Sample]:
        """Every sample at once, committed."""
        await self._walking.ended()
        samples = self._fetched()
        await self._end()
        return samples

    def _nearest(self) -> Snapshot:
        """The newest snapshot at or before the step to go on from."""
        head, base = self._record.head, self._record.base
        return head if head.step <= self.course.from_step else base

    def _leg(self, start: Snapshot) -> JobRange:
        return JobRange(
            state=np.frombuffer(start.state, np.float32).reshape(self.plan.walkers, -1),
            step=start.step,
            to_step=self.course.to_step,
            keeps=self.course.keeps,
            noisy=self.emit == "noisy",
            mark=self.course.from_step,
            ahead=AHEAD if self.streamed else math.inf,
        )

    def _fetched(self) -> list[Sample]:
        kept = self._walking.fetch()
        if self._walking.marked is not None:
            self._base = Snapshot(self.course.from_step, self._walking.marked.tobytes())
            self._walking.marked = None
        units = self.model.manifest.normaliser
        return [Sample(step, z, units) for step, z in kept]

    async def _end(self) -> None:
        """The last state is committed; then what went wrong, if anything did, is raised."""
        await self._commit((self._walking.step, self._walking.state), release=True)
        if error := self._failure or self._walking.error:
            raise error

    async def _commit(self, at: tuple[int, Floats] | None, release: bool = False) -> None:
        """A state beyond the committed one; any other is left alone."""
        if at is None or at[0] <= self.step or self._lost:
            return
        store, tally = self._means.store, self._means.tally
        head = Snapshot(at[0], at[1].tobytes())
        try:
            await store.commit(self.lease, self.step, head, self._base, release=release)
        except LocalMomentsError:
            tally.conflicts += 1
            self._lost = True  # nothing more can be committed under this lease
            raise
        tally.commits += 1
        self.step, self._base, self._released = head.step, None, release

    async def _let_go(self) -> None:
        """Whatever happened, the state is kept and the next call need not wait."""
        if self._released:
            return
        try:
            await self._commit((self._walking.step, self._walking.state), release=True)
            if not self._released:
                await self._means.store.release(self.lease)
        except LocalMomentsError as error:  # the lease runs out by itself
            log.info("chain %s was left at step %d: %s", self.chain, self.step, error)

    async def _hold(self) -> None:
        """Renews the lease; a lease that is lost stops the walking."""
        store = self._means.store
        while True:
            await asyncio.sleep(store.lease_seconds / 3)
            try:
                await store.renew(self.lease)
            except LocalMomentsError as error:
                self._failure = self._failure or error
                self.halt("lost")
                return
