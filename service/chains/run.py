"""One call on a chain: a task walks, and what it keeps is handed out once it is committed.

The walking runs ahead of the committing by a few samples at most. A commit takes whatever was kept
while the one before it was on its way, so a slow store makes commits fewer, not the chain slower
than it must be; and a caller that reads slowly holds the walking up, not the memory.
"""

import asyncio
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import numpy as np

from service.chains.asked import Stretch
from service.chains.plan import Plan
from service.core.errors import LocalMomentsError
from service.core.normaliser import Normaliser
from service.core.types import Doubles, Floats
from service.engine.chain import Position, advance
from service.engine.model import Model
from service.engine.worker import Worker
from service.store.chains import ChainStore, Lease, Record, Snapshot

log = logging.getLogger(__name__)

AHEAD = 8  # kept samples that may wait for their commit

Reason = Literal["gone", "draining", "lost"]  # the caller, the service, the lease


@dataclass(frozen=True)
class Sample:
    """What a chain emits at a step."""

    step: int
    z: Floats  # (W, d), in the model's units: half the size
    units: Normaliser

    @property
    def x(self) -> Doubles:
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
    worker: Worker
    tally: Tally


class Run:
    """Use as `async with run:`, then either `next()` until it is empty, or `all()` once."""

    def __init__(
        self,
        means: Means,
        model: Model,
        plan: Plan,
        record: Record,
        lease: Lease,
        course: Course,
        stretch: Stretch,
        running: set["Run"],
    ) -> None:
        self.chain, self.plan, self.model, self.course = record.id, plan, model, course
        self.emit = stretch.emit or plan.emit
        self.streamed = stretch.streamed
        self.step = record.head.step  # the newest that is committed
        self.delivered = course.from_step  # the newest whose samples were handed out
        self.finished = False  # the whole course was walked
        self.halted: Reason | None = None
        self._means, self._lease, self._running = means, lease, running
        self._record = record
        self._base: Snapshot | None = None  # the one to commit with the next state
        self._last: Snapshot | None = None  # the newest that was walked to
        self._kept: asyncio.Queue[Sample | None] = asyncio.Queue(AHEAD)
        self._whole: list[Sample] | None = None
        self._failure: Exception | None = None
        self._released = False
        self._tasks: list[asyncio.Task[None]] = []

    def halt(self, reason: Reason) -> None:
        """Stop before the next step; what was walked is committed."""
        self.halted = self.halted or reason

    def rest(self) -> dict[str, str | int]:
        """The call that goes on where this one ended, in the same way."""
        steps = self.course.to_step - max(self.delivered, self.course.burn_in)
        own: dict[str, str | int] = {"thin": self.course.thin, "emit": self.emit}
        own = {name: value for name, value in own.items() if value != getattr(self.plan, name)}
        return {"chain": self.chain, "from_step": self.delivered, "steps": steps, **own}

    async def __aenter__(self) -> "Run":
        self._running.add(self)
        self._tasks = [asyncio.create_task(self._hold())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._let_go()
        finally:
            self._running.discard(self)

    async def next(self) -> list[Sample]:
        """Samples that are committed; empty when there are no more. Raises what went wrong."""
        if len(self._tasks) == 1:
            self._tasks.append(asyncio.create_task(self._walk()))
        samples, more = await self._waiting()
        if samples:
            await self._commit(release=False)
            self.delivered = samples[-1].step
        elif not more:
            await self._end()
        return samples

    async def all(self) -> list[Sample]:
        """Every sample at once, committed."""
        self._whole = []
        self._tasks.append(asyncio.create_task(self._walk()))
        await self._tasks[-1]
        await self._end()
        return self._whole

    async def _waiting(self) -> tuple[list[Sample], bool]:
        """One sample or more, as many as there are; and whether others may come."""
        got = [await self._kept.get()]
        while got[-1] is not None and not self._kept.empty():
            got.append(self._kept.get_nowait())
        if got[-1] is None:
            self._kept.put_nowait(None)  # to be found again
        return [sample for sample in got if sample is not None], got[-1] is not None

    async def _end(self) -> None:
        """The last state is committed; then what went wrong, if anything did, is raised."""
        await self._commit(release=True)
        if self._failure is not None:
            raise self._failure

    async def _walk(self) -> None:
        """From the nearest snapshot to the end of the course."""
        try:
            start = self._nearest()
            state = np.frombuffer(start.state, np.float32).reshape(self.plan.walkers, -1)
            if start is self._record.head and start.step > self._record.base.step:
                self._base = start
            for step in range(start.step, self.course.to_step):
                if self.halted is not None:
                    break
                position = await self._means.worker.call(
                    advance, self.model, self.plan.walk, state, step
                )
                state = position.state
                await self._note(position)
            else:
                self.finished = True
        except Exception as error:  # told by the one who waits for samples
            self._failure = error
        if self._whole is None:
            await self._kept.put(None)

    def _nearest(self) -> Snapshot:
        """The newest snapshot at or before the step to go on from."""
        head, base = self._record.head, self._record.base
        return head if head.step <= self.course.from_step else base

    async def _note(self, position: Position) -> None:
        self._means.tally.row_steps += self.plan.walkers
        snapshot = Snapshot(position.step, position.state.tobytes())
        if position.step == self.course.from_step:
            self._base = snapshot
        if position.step > self._record.head.step:
            self._last = snapshot
        if self.course.keeps(position.step):
            await self._keep(position)

    async def _keep(self, position: Position) -> None:
        z = position.mean if self.emit == "mean" else position.noisy
        sample = Sample(position.step, z, self.model.manifest.normaliser)
        if self._whole is None:
            await self._kept.put(sample)
        else:
            self._whole.append(sample)

    async def _commit(self, release: bool) -> None:
        """The newest state that was walked to; a state that is committed already is left alone."""
        last, base = self._last, self._base
        if last is None or last.step <= self.step:
            return
        store, tally = self._means.store, self._means.tally
        try:
            await store.commit(self._lease, self.step, last, base, release=release)
        except LocalMomentsError:
            tally.conflicts += 1
            self._last = None  # nothing more can be committed under this lease
            raise
        tally.commits += 1
        self.step, self._base, self._released = last.step, None, release

    async def _let_go(self) -> None:
        """Whatever happened, the state is kept and the next call need not wait."""
        if self._released:
            return
        try:
            await self._commit(release=True)
            if not self._released:
                await self._means.store.release(self._lease)
        except LocalMomentsError as error:  # the lease runs out by itself
            log.info("chain %s was left at step %d: %s", self.chain, self.step, error)

    async def _hold(self) -> None:
        """Renews the lease; a lease that is lost stops the walking."""
        store = self._means.store
        while True:
            await asyncio.sleep(store.lease_seconds / 3)
            try:
                await store.renew(self._lease)
            except LocalMomentsError as error:
                self._failure = self._failure or error
                self.halt("lost")
                return
