"""The batcher: jobs share passes, the oldest goes first, and a bad row fails alone."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localmoments.arrays import Arrays, Floats
from localmoments.chain import draw_starts, encode_state, make_transition, positions
from localmoments.chain_state import Clamp, Transition
from localmoments.errors import ComputeError, DivergedError, OverloadError, UnusableAnswerError
from localmoments.model import Model
from service.engine.batcher import Batcher
from service.engine.chain_job import ChainJob, StepRange
from service.engine.executor import Executor

MAX_ROWS = 16


class RecordingModel(Model):
    """Record every pass. Close `gate` to hold up passes; rows of 666 fail, rows of 777 overflow."""

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
            raise RuntimeError("an error of onnxruntime")
        out = super().run(graph, **inputs)
        if "x" in inputs:
            out["mean"][(inputs["x"] == 777).any(axis=1)] = np.inf
        return out


@pytest.fixture
def model(tiny_served: Model) -> RecordingModel:
    return RecordingModel(tiny_served)


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor(Batcher(MAX_ROWS, 1000))
    yield executor
    executor.close()


def rows(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


def reconstruct(executor: Executor, model: Model, x: Floats) -> Any:
    return executor.run(model, "reconstruct", x=x, **model.noise_level(len(x)))


async def run_queued(
    model: RecordingModel, executor: Executor, make_requests: Callable[[], list[Any]]
) -> list[Any]:
    """Queue requests while a first pass is held up, so that all of them wait together."""
    model.gate.clear()
    first = asyncio.ensure_future(reconstruct(executor, model, rows(1)))
    while not model.passes:
        await asyncio.sleep(0.001)
    waiting = [asyncio.ensure_future(each) for each in make_requests()]
    await asyncio.sleep(0.01)
    model.gate.set()
    await first
    return await asyncio.gather(*waiting, return_exceptions=True)


def test_waiting_requests_share_a_pass_and_each_gets_its_own_rows(
    model: RecordingModel, executor: Executor, tiny_served: Model
) -> None:
    inputs = [rows(n, seed=n) for n in (1, 3, 2, 5)]
    got = asyncio.run(
        run_queued(model, executor, lambda: [reconstruct(executor, model, x) for x in inputs])
    )
    assert model.passes[1:] == [("reconstruct", 11)]
    for x, out in zip(inputs, got, strict=True):
        alone = tiny_served.run("reconstruct", x=x, **tiny_served.noise_level(len(x)))
        assert np.array_equal(out["mean"], alone["mean"])


def test_a_large_job_is_split_and_its_slices_take_turns_with_other_jobs(
    model: RecordingModel, executor: Executor, tiny_served: Model
) -> None:
    large, small = rows(50, 1), rows(2, 2)

    def make() -> list[Any]:
        level = model.noise_level(len(small))
        return [
            reconstruct(executor, model, large),
            executor.run(model, "encode", x=small, **level),
        ]

    got = asyncio.run(run_queued(model, executor, make))
    assert model.passes[1:] == [
        ("reconstruct", 16), ("encode", 2), ("reconstruct", 16), ("reconstruct", 16),
        ("reconstruct", 2),
    ]  # fmt: skip
    whole = tiny_served.run("reconstruct", x=large, **tiny_served.noise_level(50))
    assert np.array_equal(got[0]["mean"], whole["mean"])


def test_a_bad_row_fails_only_its_own_request(model: RecordingModel, executor: Executor) -> None:
    bad, wild = np.full((1, 8), 666, np.float32), np.full((1, 8), 777, np.float32)
    got = asyncio.run(
        run_queued(model, executor, lambda: [reconstruct(executor, model, x)
                                     for x in (rows(2), bad, wild, rows(3))])
    )  # fmt: skip
    assert [type(each) for each in got] == [dict, RuntimeError, UnusableAnswerError, dict]
    assert [len(got[0]["mean"]), len(got[3]["mean"])] == [2, 3]
    assert executor.batcher.load == 0


def test_a_cancelled_request_is_dropped_before_it_is_computed(
    model: RecordingModel, executor: Executor
) -> None:
    async def cancel_while_queued() -> None:
        model.gate.clear()
        first = asyncio.ensure_future(reconstruct(executor, model, rows(1)))
        while not model.passes:
            await asyncio.sleep(0.001)
        cancelled = asyncio.ensure_future(reconstruct(executor, model, rows(4)))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.sleep(0)
        model.gate.set()
        await first
        await reconstruct(executor, model, rows(2))

    asyncio.run(cancel_while_queued())
    assert [n for _, n in model.passes] == [1, 2]
    assert executor.batcher.load == 0


def test_admission_is_bounded_and_says_when_to_retry(
    model: RecordingModel, executor: Executor
) -> None:
    async def fill() -> None:
        await reconstruct(executor, model, rows(4))
        executor.batcher.admit(5000)  # an idle batcher admits any size
        model.gate.clear()
        first = asyncio.ensure_future(reconstruct(executor, model, rows(900)))
        await asyncio.sleep(0.01)
        executor.batcher.admit(100)
        with pytest.raises(OverloadError, match="900 rows are being computed") as refused:
            executor.batcher.admit(101)
        assert refused.value.retry_after is not None and refused.value.retry_after > 0
        model.gate.set()
        await first

    asyncio.run(fill())


def make_start(model: Model, walkers: int, seed: int) -> tuple[Transition, Floats]:
    """Return the default transition and a state at step 0."""
    transition = make_transition(model, seed=seed)
    return transition, encode_state(model, transition.kernel, draw_starts(model, walkers, seed))


def start_job(
    executor: Executor,
    model: Model,
    transition: Transition,
    state: Floats,
    steps: int,
    max_unfetched: float = math.inf,
) -> ChainJob:
    """Start a chain that samples every step."""
    walk = StepRange(0, steps, emit="noisy")
    job = ChainJob(executor.batcher, model, transition, state, 0, walk, max_unfetched)
    job.start()
    return job


def test_chains_of_any_size_walk_in_a_batch_as_they_walk_alone(
    model: RecordingModel, executor: Executor, tiny_served: Model
) -> None:
    sizes = [(1, 7), (3, 4), (40, 5), (2, 6), (1, 1)]

    async def walk_all() -> list[Any]:
        jobs = [start_job(executor, model, *make_start(model, w, w + n), n) for w, n in sizes]
        for job in jobs:
            await job.wait_until_done()
        return [(job.error, job.step, job.fetch()) for job in jobs]

    for (walkers, steps), (error, step, samples) in zip(
        sizes, asyncio.run(walk_all()), strict=True
    ):
        alone = list(
            positions(tiny_served, *make_start(tiny_served, walkers, walkers + steps), steps)
        )
        assert error is None and step == steps
        assert [s for s, _ in samples] == list(range(1, steps + 1))
        for (_, z), position in zip(samples, alone, strict=True):
            assert np.array_equal(z, position.noisy)
    assert max(n for _, n in model.passes) <= MAX_ROWS
    assert executor.batcher.chain_row_steps == sum(w * n for w, n in sizes)


@pytest.mark.parametrize("change", ["clamp", "metropolis"])
def test_steps_of_several_graph_calls_share_passes_and_walk_as_they_walk_alone(
    model: RecordingModel, executor: Executor, tiny_served: Model, change: str
) -> None:
    """Small chains allow one unfetched sample, so that they pause between steps."""
    sizes = [(1, 4), (3, 3), (20, 3), (2, 5)]
    known = Clamp(np.arange(8)[None] < 3, rows(1), np.zeros((1, 8), np.float32))

    def start(served: Model, walkers: int) -> tuple[Transition, Floats]:
        transition, state = make_start(served, walkers, walkers)
        if change == "clamp":
            return replace(transition, clamp=known), state
        return Transition("walkjump", walkers, (0.2,), metropolis=True), state

    async def walk_all() -> list[Any]:
        jobs = [
            start_job(executor, model, *start(model, w), n, 1 if w < 3 else math.inf)
            for w, n in sizes
        ]
        fetched: list[list[Any]] = [[] for _ in jobs]
        while not all(job.is_done for job in jobs):
            for job, samples in zip(jobs, fetched, strict=True):
                samples.extend(job.fetch())
            await asyncio.sleep(0.001)
        return [(job.error, s + job.fetch()) for job, s in zip(jobs, fetched, strict=True)]

    for (walkers, steps), (error, samples) in zip(sizes, asyncio.run(walk_all()), strict=True):
        assert error is None and [step for step, _ in samples] == list(range(1, steps + 1))
        alone = positions(tiny_served, *start(tiny_served, walkers), steps)
        for (_, z), position in zip(samples, alone, strict=True):
            assert np.array_equal(z, position.noisy)
    assert any(n > 3 and n not in (16, 20) for _, n in model.passes)  # rows of several chains


def test_a_chain_pauses_while_nobody_fetches_and_goes_on_when_fetched(
    model: RecordingModel, executor: Executor
) -> None:
    async def read_slowly() -> list[int]:
        job = start_job(executor, model, *make_start(model, 2, 3), 50, max_unfetched=4)
        steps: list[int] = []
        while not job.is_done:
            await job.wait_for_news()
            await asyncio.sleep(0.01)
            assert job.step <= (steps[-1] if steps else 0) + 4
            steps += [step for step, _ in job.fetch()]
        return steps

    assert asyncio.run(read_slowly()) == list(range(1, 51))
    assert executor.batcher.load == 0


@pytest.mark.parametrize("max_unfetched", [2, math.inf])
def test_a_stopped_chain_takes_at_most_one_more_step(
    model: RecordingModel, executor: Executor, max_unfetched: float
) -> None:
    async def stop() -> int:
        job = start_job(executor, model, *make_start(model, 2, 3), 10**6, max_unfetched)
        while job.step < 2:
            await asyncio.sleep(0.001)
        job.stop()
        passes = len(model.passes)
        await asyncio.wait_for(job.wait_until_done(), 10)
        assert job.error is None
        return len(model.passes) - passes

    assert asyncio.run(stop()) <= 1
    assert executor.batcher.load == 0


def test_a_chain_that_diverges_fails_alone_and_keeps_its_last_state(
    model: RecordingModel, executor: Executor
) -> None:
    async def diverge() -> tuple[Any, Any]:
        transition, state = make_start(model, 2, 3)
        wild = start_job(executor, model, Transition("walkjump", 3, (1e6,), 1e3), state, 3000)
        tame = start_job(executor, model, transition, state, 30)
        await wild.wait_until_done()
        await tame.wait_until_done()
        return wild, tame

    wild, tame = asyncio.run(diverge())
    assert isinstance(wild.error, DivergedError) and wild.step < 3000
    assert np.isfinite(wild.state).all() and tame.error is None and tame.step == 30


def test_a_bug_in_the_batcher_fails_all_jobs_and_the_batcher_recovers(
    model: RecordingModel, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        with monkeypatch.context() as broken:
            broken.setattr("service.engine.batcher.concatenate", lambda slices: 1 // 0)
            waiting = [reconstruct(executor, model, rows(1)) for _ in range(3)]
            job = start_job(executor, model, *make_start(model, 2, 3), 50)
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(result, ComputeError)
            await job.wait_until_done()
            assert isinstance(job.error, ComputeError)
        with pytest.raises(ComputeError):
            executor.batcher.check_health()
        assert len((await reconstruct(executor, model, rows(2)))["mean"]) == 2

    asyncio.run(fail())
    assert executor.batcher.restarts >= 1 and executor.batcher.load == 0


def test_closing_fails_waiting_and_paused_jobs(model: RecordingModel) -> None:
    async def close() -> None:
        executor = Executor(Batcher(MAX_ROWS, 1000))
        job = start_job(executor, model, *make_start(model, 2, 3), 10**6, max_unfetched=1)
        await job.wait_for_news()
        time.sleep(0.05)  # until it has paused
        await asyncio.to_thread(executor.close)
        with pytest.raises(ComputeError):
            await reconstruct(executor, model, rows(1))
        job.stop()
        await asyncio.wait_for(job.wait_until_done(), 5)
        assert isinstance(job.error, ComputeError)

    asyncio.run(close())
