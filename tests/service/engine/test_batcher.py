"""The batcher: rows share passes and never mix, the oldest first, what fails fails alone."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localmoments.arrays import Floats
from localmoments.chain import draw_starts, encode_state, make_transition, positions
from localmoments.errors import DivergedError, OverloadError, UnusableAnswerError, WorkerError
from localmoments.model import Arrays, Model
from localmoments.transition import Clamp, Transition
from service.engine.batcher import Batcher
from service.engine.chain_job import JobRange
from service.engine.executor import Executor

MOST = 16


class Watched(Model):
    """Notes each pass; can be made to wait, and fails or overflows on rows marked for it."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.folder, model.manifest, threads=1)
        self.passes: list[tuple[str, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, graph: str, **inputs: Any) -> Arrays:
        rows = next(iter(inputs.values()))
        self.passes.append((graph, len(rows)))
        self.gate.wait(20)
        if "x" in inputs and (inputs["x"] == 666).any():
            raise RuntimeError("onnxruntime would say so")
        out = super().run(graph, **inputs)
        if "x" in inputs:
            out["mean"][(inputs["x"] == 777).any(axis=1)] = np.inf
        return out


@pytest.fixture
def model(tiny_served: Model) -> Watched:
    return Watched(tiny_served)


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor(Batcher(MOST, 1000))
    yield executor
    executor.close()


def rows(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


def reconstruct(executor: Executor, model: Model, x: Floats) -> Any:
    return executor.run(model, "reconstruct", x=x, **model.noise_level(len(x)))


async def held(model: Watched, executor: Executor, make: Callable[[], list[Any]]) -> list[Any]:
    """What is asked for while a first pass is held up, so that all of it waits together."""
    model.gate.clear()
    first = asyncio.ensure_future(reconstruct(executor, model, rows(1)))
    while not model.passes:
        await asyncio.sleep(0.001)
    waiting = [asyncio.ensure_future(each) for each in make()]
    await asyncio.sleep(0.01)
    model.gate.set()
    await first
    return await asyncio.gather(*waiting, return_exceptions=True)


def test_waiting_rows_share_a_pass_and_get_their_own_answers(
    model: Watched, executor: Executor, tiny_served: Model
) -> None:
    asked = [rows(n, seed=n) for n in (1, 3, 2, 5)]
    got = asyncio.run(
        held(model, executor, lambda: [reconstruct(executor, model, x) for x in asked])
    )
    assert model.passes[1:] == [("reconstruct", 11)]
    for x, out in zip(asked, got, strict=True):
        alone = tiny_served.run("reconstruct", x=x, **tiny_served.noise_level(len(x)))
        assert np.array_equal(out["mean"], alone["mean"])


def test_no_pass_is_larger_than_allowed_and_large_work_takes_turns(
    model: Watched, executor: Executor, tiny_served: Model
) -> None:
    large, small = rows(50, 1), rows(2, 2)

    def make() -> list[Any]:
        level = model.noise_level(len(small))
        return [
            reconstruct(executor, model, large),
            executor.run(model, "encode", x=small, **level),
        ]

    got = asyncio.run(held(model, executor, make))
    assert model.passes[1:] == [
        ("reconstruct", 16), ("encode", 2), ("reconstruct", 16), ("reconstruct", 16),
        ("reconstruct", 2),
    ]  # fmt: skip
    whole = tiny_served.run("reconstruct", x=large, **tiny_served.noise_level(50))
    assert np.array_equal(got[0]["mean"], whole["mean"])


def test_a_bad_row_fails_alone(model: Watched, executor: Executor) -> None:
    bad, wild = np.full((1, 8), 666, np.float32), np.full((1, 8), 777, np.float32)
    got = asyncio.run(
        held(model, executor, lambda: [reconstruct(executor, model, x)
                                     for x in (rows(2), bad, wild, rows(3))])
    )  # fmt: skip
    assert [type(each) for each in got] == [dict, RuntimeError, UnusableAnswerError, dict]
    assert [len(got[0]["mean"]), len(got[3]["mean"])] == [2, 3]
    assert executor.batcher.load == 0


def test_work_whose_caller_has_gone_is_dropped_before_it_runs(
    model: Watched, executor: Executor
) -> None:
    async def leave() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(reconstruct(executor, model, rows(1)))
        while not model.passes:
            await asyncio.sleep(0.001)
        gone = asyncio.ensure_future(reconstruct(executor, model, rows(4)))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0)
        model.gate.set()
        await first
        await reconstruct(executor, model, rows(2))

    asyncio.run(leave())
    assert [n for _, n in model.passes] == [1, 2]
    assert executor.batcher.load == 0


def test_admission_is_bounded_and_says_when_to_come_again(
    model: Watched, executor: Executor
) -> None:
    async def fill() -> None:
        await reconstruct(executor, model, rows(4))
        executor.batcher.admit(5000)  # nothing is in work: even this much may come
        model.gate.clear()
        first = asyncio.ensure_future(reconstruct(executor, model, rows(900)))
        await asyncio.sleep(0.01)
        executor.batcher.admit(100)
        with pytest.raises(OverloadError, match="900 rows are in work") as refused:
            executor.batcher.admit(101)
        assert refused.value.retry_after is not None and refused.value.retry_after > 0
        model.gate.set()
        await first

    asyncio.run(fill())


def leg(
    model: Model, walkers: int, seed: int, steps: int, **more: Any
) -> tuple[Transition, JobRange]:
    walk = make_transition(model, seed=seed)
    state = encode_state(model, walk.kernel, draw_starts(model, walkers, seed))
    own = {"keeps": lambda step: True, "noisy": True, "mark": -1, "ahead": math.inf, **more}
    return walk, JobRange(state, 0, steps, **own)


def test_chains_of_all_sizes_walk_together_as_they_walk_alone(
    model: Watched, executor: Executor, tiny_served: Model
) -> None:
    sizes = [(1, 7), (3, 4), (40, 5), (2, 6), (1, 1)]

    async def walk_all() -> list[Any]:
        runs = [executor.walk(model, *leg(model, w, w + n, n)) for w, n in sizes]
        for run in runs:
            await run.ended()
        return [(run.error, run.step, run.fetch()) for run in runs]

    for (walkers, steps), (error, step, kept) in zip(sizes, asyncio.run(walk_all()), strict=True):
        walk, begun = leg(tiny_served, walkers, walkers + steps, steps)
        alone = list(positions(tiny_served, walk, begun.state, steps))
        assert error is None and step == steps and [s for s, _ in kept] == list(range(1, steps + 1))
        for (_, z), position in zip(kept, alone, strict=True):
            assert np.array_equal(z, position.noisy)
    assert max(n for _, n in model.passes) <= MOST


@pytest.mark.parametrize("change", ["clamp", "metropolis"])
def test_steps_of_several_calls_share_passes_and_walk_as_they_walk_alone(
    model: Watched, executor: Executor, tiny_served: Model, change: str
) -> None:
    """Some of them read slowly, so that they pause between steps."""
    sizes = [(1, 4), (3, 3), (20, 3), (2, 5)]
    known = Clamp(np.arange(8)[None] < 3, rows(1), np.zeros((1, 8), np.float32))

    def one(served: Model, walkers: int, steps: int) -> tuple[Transition, JobRange]:
        walk, begun = leg(served, walkers, walkers, steps, ahead=1 if walkers < 3 else math.inf)
        if change == "clamp":
            return replace(walk, clamp=known), begun
        return Transition("walkjump", walkers, (0.2,), metropolis=True), begun

    async def walk_all() -> list[Any]:
        runs = [executor.walk(model, *one(model, w, n)) for w, n in sizes]
        kept: list[list[Any]] = [[] for _ in runs]
        while not all(run.done for run in runs):
            for run, mine in zip(runs, kept, strict=True):
                mine.extend(run.fetch())
            await asyncio.sleep(0.001)
        return [(run.error, mine + run.fetch()) for run, mine in zip(runs, kept, strict=True)]

    for (walkers, steps), (error, kept) in zip(sizes, asyncio.run(walk_all()), strict=True):
        walk, begun = one(tiny_served, walkers, steps)
        assert error is None and [step for step, _ in kept] == list(range(1, steps + 1))
        for (_, z), position in zip(
            kept, positions(tiny_served, walk, begun.state, steps), strict=True
        ):
            assert np.array_equal(z, position.noisy)
    assert any(n > 3 and n not in (16, 20) for _, n in model.passes)  # of several chains


def test_a_chain_that_nobody_reads_pauses_and_goes_on_when_read(
    model: Watched, executor: Executor
) -> None:
    async def read_slowly() -> list[int]:
        run = executor.walk(model, *leg(model, 2, 3, 50, ahead=4))
        got: list[int] = []
        while not run.done:
            await run.changed()
            await asyncio.sleep(0.01)
            assert run.step <= (got[-1] if got else 0) + 4
            got += [step for step, _ in run.fetch()]
        return got

    assert asyncio.run(read_slowly()) == list(range(1, 51))
    assert executor.batcher.load == 0


@pytest.mark.parametrize("ahead", [2, math.inf])
def test_a_halted_chain_stops_within_a_step(
    model: Watched, executor: Executor, ahead: float
) -> None:
    async def halt() -> int:
        run = executor.walk(model, *leg(model, 2, 3, 10**6, ahead=ahead))
        while run.step < 2:
            await asyncio.sleep(0.001)
        run.halt()
        passes = len(model.passes)
        await asyncio.wait_for(run.ended(), 10)
        assert run.error is None
        return len(model.passes) - passes

    assert asyncio.run(halt()) <= 1
    assert executor.batcher.load == 0


def test_a_chain_that_runs_away_fails_alone_where_it_was(
    model: Watched, executor: Executor
) -> None:
    async def run_away() -> tuple[Any, Any]:
        walk, begun = leg(model, 2, 3, 3000)
        wild = executor.walk(model, Transition("walkjump", 3, (1e6,), 1e3), begun)
        tame = executor.walk(model, *leg(model, 2, 3, 30))
        await wild.ended()
        await tame.ended()
        return wild, tame

    wild, tame = asyncio.run(run_away())
    assert isinstance(wild.error, DivergedError) and wild.step < 3000
    assert np.isfinite(wild.state).all() and tame.error is None and tame.step == 30


def test_a_failing_batcher_fails_every_caller_says_so_and_begins_anew(
    model: Watched, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        with monkeypatch.context() as broken:
            broken.setattr("service.engine.batcher._joined", lambda parts: 1 // 0)
            waiting = [reconstruct(executor, model, rows(1)) for _ in range(3)]
            chain = executor.walk(model, *leg(model, 2, 3, 50))
            for answer in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(answer, WorkerError)
            await chain.ended()
            assert isinstance(chain.error, WorkerError)
        with pytest.raises(WorkerError):
            executor.batcher.check()
        assert len((await reconstruct(executor, model, rows(2)))["mean"]) == 2

    asyncio.run(fail())
    assert executor.batcher.restarts >= 1 and executor.batcher.load == 0


def test_closing_fails_what_waits(model: Watched) -> None:
    async def close() -> None:
        executor = Executor(Batcher(MOST, 1000))
        run = executor.walk(model, *leg(model, 2, 3, 10**6, ahead=1))
        await run.changed()
        time.sleep(0.05)
        await asyncio.to_thread(executor.close)
        with pytest.raises(WorkerError):
            await reconstruct(executor, model, rows(1))
        run.halt()  # it had paused
        await asyncio.wait_for(run.ended(), 5)
        assert isinstance(run.error, WorkerError)

    asyncio.run(close())
