"""The chain service: create, resume, read, fork and delete chains. The routes call this."""

import contextlib
import hashlib
import math
import re
import secrets
from dataclasses import dataclass, replace

import numpy as np

from localmoments.arrays import Floats, Reals
from localmoments.chain import decode_state, step_cost
from localmoments.errors import (
    DrainingError,
    ExpiredChainError,
    InputError,
    StaleChainError,
    UnknownChainError,
    UsedKeyError,
)
from localmoments.model import Model
from service.caller import Caller
from service.chains.call import MAX_UNCOMMITTED, ChainCall
from service.chains.planning import (
    ChainLimits,
    Change,
    Plan,
    check_limits,
    check_unchanged,
    dump_plan,
    find_pinned_model,
    fork_plan,
    is_start_cheap,
    load_plan,
    make_plan,
    make_start_state,
    resolve_steps,
)
from service.chains.spec import CHAIN_ID, CallSpec, ChainSpec
from service.engine.chain_job import ChainJob, StepRange
from service.engine.executor import Executor
from service.engine.repository import ModelRepository
from service.store.chains import ChainStore, Record, Snapshot


@dataclass(frozen=True)
class ChainStatus:
    """A chain as it is stored, and where its walkers are."""

    record: Record
    plan: Plan
    x: Reals  # (W, d), in the units of the data


class ChainService:
    """Use cases over models and a store. Use it from one event loop."""

    def __init__(
        self, models: ModelRepository, executor: Executor, store: ChainStore, limits: ChainLimits
    ) -> None:
        self.store = store
        self.batcher = executor.batcher
        self.is_draining = False
        self.created = 0  # chains created by this process, forks included
        self._models, self._executor, self._limits = models, executor, limits
        self._running: set[ChainCall] = set()
        self._fork_jobs: set[ChainJob] = set()  # that walk to the step of a fork

    async def open(
        self,
        spec: ChainSpec,
        call: CallSpec,
        caller: Caller,
        key: tuple[str, str] | None = None,
    ) -> ChainCall:
        """Create a chain and return the first call on it.

        Args:
            key: the caller's idempotency key and a digest of the request. A second request with
                the same key and digest returns to step 0 of the same chain.

        Raises:
            UsedKeyError: the key belongs to a different request.
        """
        self._check_not_draining()
        if call.from_step:
            raise InputError("`from_step` needs `chain`, the id of an existing chain.")
        chain, request = secrets.token_hex(16), ""
        if key is not None:
            chain, request = make_chain_id(caller, key[0]), key[1]
            with contextlib.suppress(UnknownChainError, ExpiredChainError):  # the key is new
                return await self._repeat(chain, call, caller, request)
        model = self._models.find(spec.model)
        points = await self._find_start_points(spec, caller)
        plan = make_plan(model, spec, call, points, request)
        steps = resolve_steps(plan, call, 0)
        self._admit(plan, model, steps, call.streamed, 0, caller)
        if is_start_cheap(model, plan):
            state = make_start_state(model, plan, points)
        else:
            state = await self._executor.call(make_start_state, model, plan, points)
        # The walk may start before the chain is stored: no sample is delivered before its commit.
        job = self._start_job(plan, model, state, 0, steps, call.streamed)
        lease = None
        try:
            lease = await self.store.create(chain, caller.name, dump_plan(plan), state.tobytes())
        finally:
            if lease is None:
                job.stop()
        if lease is None:  # a request with the same key came at the same time
            return await self._repeat(chain, call, caller, request)
        self.created += 1
        return ChainCall(
            self.store, job, lease, plan, model, steps,
            committed=0, base=None, streamed=call.streamed, seconds=call.seconds,
            running=self._running,
        )  # fmt: skip

    async def resume(
        self, chain: str, spec: ChainSpec, call: CallSpec, caller: Caller
    ) -> ChainCall:
        """Return a call that continues an existing chain.

        Args:
            spec: may repeat what the chain was created with.

        Raises:
            BusyChainError: another call holds the lease.
            StaleChainError: the chain cannot continue from `call.from_step`, or its model changed.
        """
        self._check_not_draining()
        record, lease = await self.store.acquire(_check_id(chain), _owner(caller))
        try:
            plan, model = self._load(record)
            check_unchanged(plan, model, spec, chain)
            from_step = _choose_step(record, call.from_step)
            steps = resolve_steps(plan, call, from_step)
            start = _find_snapshot(record, from_step)
            self._admit(plan, model, steps, call.streamed, start.step, caller)
            state = _read_state(plan, start)
            job = self._start_job(plan, model, state, start.step, steps, call.streamed)
        except BaseException:
            await self.store.release(lease)
            raise
        return ChainCall(
            self.store, job, lease, plan, model, steps,
            committed=record.head.step,
            # The head from before this call becomes the base, which `from_step` can return to.
            base=start if start.step > record.base.step else None,
            streamed=call.streamed, seconds=call.seconds, running=self._running,
        )  # fmt: skip

    async def get(self, chain: str, caller: Caller) -> ChainStatus:
        """Read a chain's plan and newest committed state."""
        record = await self.store.read(_check_id(chain), _owner(caller))
        plan, model = self._load(record)
        kernel, state = plan.transition.kernel, _read_state(plan, record.head)
        z = await self._executor.call(decode_state, model, kernel, state)
        # In double precision, so that converting back to model units gives the same bits.
        x = model.manifest.normaliser.to_user(z.astype(np.float64))
        return ChainStatus(record, plan, x)

    async def fork(self, chain: str, change: Change, caller: Caller) -> ChainStatus:
        """Create a chain that starts at a state of this one and then walks independently."""
        self._check_not_draining()
        record = await self.store.read(_check_id(chain), _owner(caller))
        plan, model = self._load(record)
        fork = fork_plan(plan, model, change)
        origin = await self._walk_to(plan, model, record, change.from_step, caller)
        name = secrets.token_hex(16)
        lease = await self.store.create(
            name, caller.name, dump_plan(fork), origin.state, step=origin.step
        )
        if lease is not None:
            await self.store.release(lease)
        self.created += 1
        return await self.get(name, caller)

    async def delete(self, chain: str, caller: Caller) -> None:
        """Delete a chain. A call under way on it fails at its next commit."""
        await self.store.delete(_check_id(chain), _owner(caller))

    async def check_ready(self) -> None:
        """Raise if any call would fail: while draining, after a failure, without a store."""
        self._check_not_draining()
        self.batcher.check_health()
        await self.store.ping()

    def drain(self, *, whole: bool) -> None:
        """Refuse new calls, and stop streams at their next step; with `whole`, all calls.

        Call this on the event loop. It takes locks of running jobs, so a signal handler must
        schedule it with `loop.call_soon_threadsafe`.
        """
        self.is_draining = True
        for call in self._running:
            if call.streamed or whole:
                call.stop("draining")
        if whole:
            for job in self._fork_jobs:
                job.stop()

    @property
    def running(self) -> int:
        """The number of calls under way, forks included."""
        return len(self._running) + len(self._fork_jobs)

    def _check_not_draining(self) -> None:
        if self.is_draining:
            raise _make_draining_error()

    async def _repeat(self, chain: str, call: CallSpec, caller: Caller, request: str) -> ChainCall:
        """Answer a request that was sent again: the same samples, from step 0 of its chain."""
        record = await self.store.read(chain, _owner(caller))
        if self._load(record)[0].request != request:
            raise UsedKeyError("This Idempotency-Key was used for a different request.")
        return await self.resume(chain, ChainSpec(), replace(call, from_step=0), caller)

    async def _find_start_points(self, spec: ChainSpec, caller: Caller) -> Reals | None:
        """Return the start points, if `spec` names points or a chain; (1 or W, d)."""
        if spec.start == "chain":
            return (await self.get(spec.start_chain, caller)).x
        return spec.start_points

    def _admit(
        self,
        plan: Plan,
        model: Model,
        steps: StepRange,
        streamed: bool,
        start_step: int,
        caller: Caller,
    ) -> None:
        """Check limits and load, then charge the caller, before anything is computed or stored."""
        check_limits(self._limits, plan, model, steps, streamed)
        self.batcher.admit(plan.walkers)
        length = steps.to_step - start_step
        caller.charge(plan.walkers * length * step_cost(model, plan.transition))

    def _start_job(
        self, plan: Plan, model: Model, state: Floats, step: int, steps: StepRange, streamed: bool
    ) -> ChainJob:
        max_unfetched = MAX_UNCOMMITTED if streamed else math.inf
        job = ChainJob(self.batcher, model, plan.transition, state, step, steps, max_unfetched)
        job.start()
        return job

    def _load(self, record: Record) -> tuple[Plan, Model]:
        try:
            plan = load_plan(record.plan)
        except (ValueError, TypeError, KeyError) as error:
            raise StaleChainError(f"Chain {record.id} cannot be read: {error}.") from None
        return plan, find_pinned_model(self._models, plan, record.id)

    async def _walk_to(
        self, plan: Plan, model: Model, record: Record, step: int | None, caller: Caller
    ) -> Snapshot:
        """Recompute the state at a step that the chain can return to."""
        step = _choose_step(record, step)
        start = _find_snapshot(record, step)
        if start.step == step:
            return start
        steps = StepRange(start.step, step, burn_in=step)  # all burn-in: no samples
        self._admit(plan, model, steps, False, start.step, caller)
        job = self._start_job(plan, model, _read_state(plan, start), start.step, steps, False)
        self._fork_jobs.add(job)
        try:
            await job.wait_until_done()
        finally:
            job.stop()
            self._fork_jobs.discard(job)
        if job.error is not None:
            raise job.error
        if job.step < step:  # `drain` stopped it
            raise _make_draining_error()
        return Snapshot(step, job.state.tobytes())


def make_chain_id(caller: Caller, key: str) -> str:
    """Derive a chain's id from an idempotency key, which is the caller's own."""
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def _make_draining_error() -> DrainingError:
    return DrainingError(
        "The service is shutting down. Ask another replica, or try again.", retry_after=1
    )


def _check_id(chain: str) -> str:
    """Refuse what is not an id, so that it never reaches the store."""
    if not re.fullmatch(CHAIN_ID, chain):
        raise UnknownChainError(f"There is no chain {chain[:50]!r}.")
    return chain


def _owner(caller: Caller) -> str | None:
    return None if caller.sees_all else caller.name


def _choose_step(record: Record, asked: int | None) -> int:
    """Return the step to continue from: the newest, or the one asked for if it can be reached."""
    first, last = record.base.step, record.head.step
    step = last if asked is None else asked
    if not first <= step <= last:
        raise StaleChainError(
            f"Chain {record.id} cannot continue from step {step}, only from {first} to {last}.",
            possible={"first": first, "last": last},
        )
    return step


def _find_snapshot(record: Record, step: int) -> Snapshot:
    """Return the newest stored snapshot at or before a step."""
    return record.head if record.head.step <= step else record.base


def _read_state(plan: Plan, snapshot: Snapshot) -> Floats:
    return np.frombuffer(snapshot.state, np.float32).reshape(plan.walkers, -1)
