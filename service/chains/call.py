"""One call on a chain: the batcher walks the chain, and samples are delivered once committed.

The walk runs ahead of the commits by a few samples. A commit covers all samples that came while the
commit before it was under way. So a slow store means fewer commits, not a slower chain, and a
caller that reads slowly holds up its own walk and uses little memory.
"""

import asyncio
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from localmoments.arrays import Floats, Reals
from localmoments.columns import Normaliser
from localmoments.errors import LocalMomentsError
from localmoments.model import Model
from service.chains.planning import Plan
from service.engine.chain_job import ChainJob, StepRange
from service.store.chains import ChainStore, Lease, Snapshot

log = logging.getLogger(__name__)

MAX_UNCOMMITTED = 8  # samples of a stream that may wait for their commit

StopReason = Literal["disconnected", "draining", "lease_lost", "timed_out"]


@dataclass(frozen=True)
class Sample:
    """What a chain emits at a step."""

    step: int
    z: Floats  # (W, d), in model units, which take half the memory
    units: Normaliser

    @property
    def x(self) -> Reals:
        """The sample in the units of the data; (W, d)."""
        return self.units.to_user(self.z)


class ChainCall:
    """One call on a chain, which holds the chain's lease.

    Enter it at once with `async with call:`. From then on the lease is renewed, and a drain stops
    the call. Then either call `fetch_next` until it returns no samples, or `fetch_all` once. On
    exit, the newest state is committed and the lease is released.

    Args:
        job: the walk, already started.
        lease: the right to write to the chain.
        committed: the newest committed step.
        base: the snapshot from before this call, if the store does not have it as base yet.
        streamed: samples are delivered while the chain walks.
        seconds: stop after this time.
        running: calls that are under way; the call adds and removes itself.
    """

    def __init__(
        self,
        store: ChainStore,
        job: ChainJob,
        lease: Lease,
        plan: Plan,
        model: Model,
        steps: StepRange,
        *,
        committed: int,
        base: Snapshot | None,
        streamed: bool,
        seconds: float | None,
        running: set["ChainCall"],
    ) -> None:
        self.chain, self.plan, self.model, self.steps = lease.chain, plan, model, steps
        self.streamed = streamed
        self.step = committed  # the newest committed step
        self.stop_reason: StopReason | None = None
        self._delivered = steps.from_step  # the newest step whose samples were delivered
        self._store, self._job, self._lease = store, job, lease
        self._new_base = base  # to be committed with the next state
        self._seconds, self._running = seconds, running
        self._lease_error: Exception | None = None
        self._is_released = self._is_lost = False

    @property
    def is_finished(self) -> bool:
        """Whether the chain has walked all steps of this call."""
        job = self._job
        return job.is_done and job.error is None and job.step == self.steps.to_step

    def stop(self, reason: StopReason) -> None:
        """Stop before the next step; the steps so far are committed. Only from the event loop."""
        self.stop_reason = self.stop_reason or reason
        self._job.stop()

    def get_diagnostics(self) -> dict[str, float]:
        """Return the acceptance rate of a Metropolis correction, or nothing."""
        if not self.plan.transition.metropolis or not self._job.row_steps:
            return {}
        return {"acceptance": self._job.accepted / self._job.row_steps}

    def make_resume_request(self) -> dict[str, str | int]:
        """Return the body of the POST /sample that continues where this call stopped."""
        steps = self.steps.to_step - max(self._delivered, self.steps.burn_in)
        body: dict[str, str | int] = {
            "chain": self.chain,
            "from_step": self._delivered,
            "steps": steps,
        }
        if self.steps.thin != self.plan.thin:
            body["thin"] = self.steps.thin
        if self.steps.emit != self.plan.emit:
            body["emit"] = self.steps.emit
        return body

    async def __aenter__(self) -> Self:
        self._running.add(self)
        self._renewing = asyncio.create_task(self._renew_lease())
        self._timer: asyncio.TimerHandle | None = None
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self.stop, "timed_out")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._renewing.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._job.stop()
        try:
            await self._job.wait_until_done()
            await self._release()
        finally:
            self._running.discard(self)

    async def fetch_next(self) -> list[Sample]:
        """Wait for samples, commit their state and return them; [] at the end of the call.

        Raises:
            LocalMomentsError: the walk, the lease or a commit failed. Samples returned before
                stay valid.
        """
        while True:
            is_done = self._job.is_done  # read before the samples: nothing comes after it
            samples = self._take_samples()
            if samples:
                # Commit the state of the last sample or a later one, never an earlier one.
                await self._commit(self._job.sampled_state)
                self._delivered = samples[-1].step
                return samples
            if is_done:
                await self._commit_last()
                return []
            await self._job.wait_for_news()

    async def fetch_all(self) -> list[Sample]:
        """Wait for the end of the call, commit the last state and return all samples."""
        await self._job.wait_until_done()
        samples = self._take_samples()
        await self._commit_last()
        return samples

    def _take_samples(self) -> list[Sample]:
        samples = self._job.fetch()
        if self._job.from_state is not None:  # the job walked from an older snapshot to from_step
            self._new_base = Snapshot(self.steps.from_step, self._job.from_state.tobytes())
            self._job.from_state = None
        units = self.model.manifest.normaliser
        return [Sample(step, z, units) for step, z in samples]

    async def _commit_last(self) -> None:
        """Commit the last state, then raise what ended the walk early, if anything did."""
        await self._commit((self._job.step, self._job.state), release=True)
        if error := self._lease_error or self._job.error:
            raise error

    async def _commit(self, newest: tuple[int, Floats] | None, release: bool = False) -> None:
        """Commit a state if it is newer than the committed one."""
        if newest is None or newest[0] <= self.step or self._is_lost:
            return
        head = Snapshot(newest[0], newest[1].tobytes())
        if release:  # a renewal that arrives after this commit would find the lease gone
            self._renewing.cancel()
        try:
            await self._store.commit(self._lease, self.step, head, self._new_base, release=release)
        except LocalMomentsError:
            self._is_lost = True  # nothing more can be committed under this lease
            raise
        self.step, self._new_base, self._is_released = head.step, None, release

    async def _release(self) -> None:
        """Commit what is not committed yet and release the lease, so that the next call need not
        wait until it runs out."""
        if self._is_released:
            return
        try:
            await self._commit((self._job.step, self._job.state), release=True)
            if not self._is_released:
                await self._store.release(self._lease)
        except LocalMomentsError as error:  # the lease expires by itself
            log.info("chain %s was left at step %d: %s", self.chain, self.step, error)

    async def _renew_lease(self) -> None:
        """Renew the lease while the call lasts; stop the walk if the lease is lost."""
        while True:
            await asyncio.sleep(self._store.lease_seconds / 3)
            try:
                await self._store.renew(self._lease)
            except LocalMomentsError as error:
                self._lease_error = self._lease_error or error
                self.stop("lease_lost")
                return
