"""Open, go on, look at, fork and end a chain: what the routes call."""

import hashlib
import re
import secrets
from dataclasses import dataclass, replace

import numpy as np

from localmoments.arrays import Reals
from localmoments.chain import decode_state, step_cost
from localmoments.errors import (
    BusyChainError,
    DrainingError,
    InputError,
    StaleChainError,
    UnknownChainError,
    UsedKeyError,
)
from localmoments.model import Model
from service.caller import Caller
from service.chains.call import ChainCall, Course, Means, Tally
from service.chains.forking import Change, branched
from service.chains.limits import ChainLimits, check_limits
from service.chains.plan import Plan, dumps, loads
from service.chains.planning import begun, check_same, is_quick, opened, pinned_model
from service.chains.spec import ChainSpec, StepRange
from service.engine.chain_job import JobRange
from service.engine.executor import Executor
from service.engine.repository import Repository
from service.store.chains import ChainStore, Lease, Record, Snapshot

ID = re.compile(r"[0-9a-f]{32}")
NO_LEASE = Lease("", "")  # of a chain that is not yet in the store


@dataclass(frozen=True)
class ChainStatus:
    """Where a chain stands."""

    record: Record
    plan: Plan
    x: Reals  # (W, d), in the units of the data


class ChainService:
    """The use cases over models and a store."""

    def __init__(
        self, models: Repository, executor: Executor, store: ChainStore, limits: ChainLimits
    ) -> None:
        self.tally = Tally()
        self.store = store
        self.draining = False
        self._models, self._worker, self._limits = models, executor, limits
        self._means = Means(store, executor, self.tally)
        self.batcher = executor.batcher
        self._running: set[ChainCall] = set()

    async def open(
        self,
        making: ChainSpec,
        stretch: StepRange,
        caller: Caller,
        key: tuple[str, str] | None = None,
    ) -> ChainCall:
        """A new chain, and a call on it; `key` names and fingerprints a request sent again."""
        self._admit_new()
        if stretch.from_step:
            raise InputError("from_step belongs to a chain that exists; name it in chain.")
        model = self._models.find(making.model)
        points = await self._start_points(model, making, caller)
        chain = opened(model, making, stretch, points, key[1] if key else "")
        course = self._course(chain.plan, stretch, 0)
        self._admit(chain.plan, model, course, stretch, 0, caller)
        name = chain_id(caller, key[0]) if key else secrets.token_hex(16)
        state = begun(chain) if is_quick(chain) else await self._worker.call(begun, chain)
        origin = Snapshot(0, state.tobytes())
        record = Record(name, caller.name, b"", origin, origin, 0, 0, 0)
        run = self._run(model, chain.plan, record, NO_LEASE, course, stretch)
        run.begin()  # nothing is handed out before it is committed, so it need not wait
        try:
            lease = await self.store.create(name, caller.name, dumps(chain.plan), origin.state)
        except BaseException:
            run.give_up()
            raise
        if lease is None:
            run.give_up()
            return await self._again(name, stretch, caller, key)
        run.lease = lease
        self.tally.opened += 1
        return run

    async def go_on(
        self, chain: str, making: ChainSpec, stretch: StepRange, caller: Caller
    ) -> ChainCall:  # fmt: skip
        """A call on a chain that exists."""
        self._admit_new()
        record, lease = await self._acquired(chain, caller)
        try:
            plan, model = self._understood(record)
            check_same(plan, model, making, chain)
            from_step = _from_step(record, stretch.from_step)
            course = self._course(plan, stretch, from_step)
            nearest = max(s.step for s in (record.base, record.head) if s.step <= from_step)
            self._admit(plan, model, course, stretch, nearest, caller)
        except BaseException:
            await self.store.release(lease)
            raise
        return self._run(model, plan, record, lease, course, stretch)

    async def look(self, chain: str, caller: Caller) -> ChainStatus:
        record = await self.store.read(_checked(chain), _owner(caller))
        plan, model = self._understood(record)
        return ChainStatus(record, plan, await self._x(plan, model, record.head))

    async def fork(self, chain: str, change: Change, caller: Caller) -> ChainStatus:
        """A new chain that stands where this one does (or did), and walks on by itself."""
        self._admit_new()
        record = await self.store.read(_checked(chain), _owner(caller))
        plan, model = self._understood(record)
        branch = branched(plan, model, change)
        at = await self._snapshot(plan, model, record, change.from_step, caller)
        name = secrets.token_hex(16)
        lease = await self.store.create(name, caller.name, dumps(branch), at.state, step=at.step)
        if lease is not None:
            await self.store.release(lease)
        self.tally.opened += 1
        return await self.look(name, caller)

    async def end(self, chain: str, caller: Caller) -> None:
        await self.store.delete(_checked(chain), _owner(caller))

    async def check_ready(self) -> None:
        """Raise where a call would fail whatever it asked for."""
        self._admit_new()
        self.batcher.check()
        await self.store.ping()

    def drain(self, *, whole: bool) -> None:
        """Nothing new begins; streams stop at their next step, and with `whole` the rest too."""
        self.draining = True
        for run in self._running:
            if run.streamed or whole:
                run.halt("draining")

    @property
    def row_steps(self) -> int:
        """Of all runs, those under way too."""
        return self.tally.row_steps + sum(run.row_steps for run in self._running)

    @property
    def running(self) -> int:
        """Calls that walk at this moment."""
        return len(self._running)

    def _admit_new(self) -> None:
        if self.draining:
            raise DrainingError("The service is about to end; ask another, or again.",
                                retry_after=1)  # fmt: skip

    async def _acquired(self, chain: str, caller: Caller) -> tuple[Record, Lease]:
        try:
            return await self.store.acquire(_checked(chain), _owner(caller))
        except BusyChainError:
            self.tally.conflicts += 1
            raise

    async def _again(
        self, chain: str, stretch: StepRange, caller: Caller, key: tuple[str, str] | None
    ) -> ChainCall:
        """The same request a second time: the same samples, from the chain's first step."""
        record = await self.store.read(chain, _owner(caller))
        if key is None or self._understood(record)[0].request != key[1]:
            raise UsedKeyError("This Idempotency-Key was used for another request.")
        return await self.go_on(chain, ChainSpec(), replace(stretch, from_step=0), caller)

    async def _start_points(
        self, model: Model, making: ChainSpec, caller: Caller
    ) -> Reals | None:  # fmt: skip
        start = making.start
        if start is None or start.kind in ("data", "noise"):
            return None
        points = start.points
        if start.kind == "chain":
            points = (await self.look(start.chain, caller)).x
        assert points is not None
        return points

    def _course(self, plan: Plan, stretch: StepRange, from_step: int) -> Course:
        to_step = max(from_step, plan.burn_in) + stretch.steps
        return Course(from_step, to_step, plan.burn_in, stretch.thin or plan.thin)

    def _admit(
        self, plan: Plan, model: Model, course: Course, stretch: StepRange, nearest: int,
        caller: Caller,
    ) -> None:  # fmt: skip
        """Within the limits, and paid for, before anything is computed or stored."""
        check_limits(self._limits, plan, model, course, stretch.streamed)
        self.batcher.admit(plan.walkers)
        caller.charge(plan.walkers * (course.to_step - nearest) * step_cost(model, plan.walk))

    def _run(
        self, model: Model, plan: Plan, record: Record, lease: Lease, course: Course,
        stretch: StepRange,
    ) -> ChainCall:  # fmt: skip
        return ChainCall(self._means, model, plan, record, lease, course, stretch, self._running)

    def _understood(self, record: Record) -> tuple[Plan, Model]:
        try:
            plan = loads(record.plan)
        except (ValueError, TypeError, KeyError) as error:
            raise StaleChainError(f"Chain {record.id} cannot be read: {error}.") from None
        return plan, pinned_model(self._models, plan, record.id)

    async def _x(self, plan: Plan, model: Model, at: Snapshot) -> Reals:
        state = np.frombuffer(at.state, np.float32).reshape(plan.walkers, -1)
        z = await self._worker.call(decode_state, model, plan.kernel, state)
        # In double, so that the way back to the model's units leads to the same bits.
        return model.manifest.normaliser.to_user(z.astype(np.float64))

    async def _snapshot(
        self, plan: Plan, model: Model, record: Record, step: int | None, caller: Caller
    ) -> Snapshot:
        """The state at a step that can still be returned to."""
        step = _from_step(record, step)
        at = record.head if step >= record.head.step else record.base
        caller.charge(plan.walkers * (step - at.step) * step_cost(model, plan.walk))
        state = np.frombuffer(at.state, np.float32).reshape(plan.walkers, -1)
        walking = self._worker.walk(model, plan.walk, JobRange(state, at.step, step))
        try:
            await walking.ended()
        finally:
            walking.halt()
        if walking.error is not None:
            raise walking.error
        return Snapshot(step, walking.state.tobytes())


def _checked(chain: str) -> str:
    """What is no id never reaches the store."""
    if not ID.fullmatch(chain):
        raise UnknownChainError(f"There is no chain {chain[:50]!r}.")
    return chain


def _owner(caller: Caller) -> str | None:
    return None if caller.sees_all else caller.name


def chain_id(caller: Caller, key: str) -> str:
    """Of the chain that a key of the caller's own choice stands for."""
    return hashlib.sha256(f"{caller.name}\0{key}".encode()).hexdigest()[:32]


def _from_step(record: Record, asked: int | None) -> int:
    first, last = record.base.step, record.head.step
    step = last if asked is None else asked
    if not first <= step <= last:
        raise StaleChainError(
            f"Chain {record.id} cannot go on from step {step}: {first} to {last} are possible.",
            possible={"first": first, "last": last},
        )
    return step
