"""A generator of graph calls as a job: the same bits as in process, alone or among others."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localmoments.arrays import Arrays
from localmoments.errors import UnusableAnswerError
from localmoments.graph_calls import Call, Calls, run_calls
from localmoments.model import Model
from localmoments.moments import Moments, MomentsSpec, find_moments
from service.engine.executor import Executor

SPEC = MomentsSpec(rank=3, include=frozenset({"mean", "tangents", "covariance", "trust"}))


@pytest.fixture
def x(tiny_served: Model) -> Any:
    return tiny_served.manifest.normaliser.to_user(tiny_served.start_points())


def moments_of(model: Model, x: Any, spec: MomentsSpec = SPEC) -> Calls[Moments]:
    return find_moments(model, x, spec)


@pytest.mark.parametrize("full_jacobian_dims", [128, 1])
def test_moments_have_the_same_bits_as_in_process_alone_or_among_others(
    executor: Executor, tiny_served: Model, x: Any, full_jacobian_dims: int
) -> None:
    spec = replace(SPEC, include=frozenset({"mean", "tangents", "trust"}))

    async def run_all() -> list[Moments]:
        return await asyncio.gather(*(
            executor.run_calls(tiny_served, find_moments(tiny_served, row[None], spec,
                                                         full_jacobian_dims))
            for row in x
        ))  # fmt: skip

    for row, found in zip(x, asyncio.run(run_all()), strict=True):
        calls = find_moments(tiny_served, row[None], spec, full_jacobian_dims)
        expected = run_calls(tiny_served, calls)
        assert found.trust == expected.trust
        for name in ("mean", "eigenvalues", "tangents"):
            assert np.array_equal(getattr(found, name), getattr(expected, name))


def test_jobs_of_several_requests_share_passes(
    executor: Executor, tiny_served: Model, x: Any
) -> None:
    async def run_all() -> None:
        await asyncio.gather(*(
            executor.run_calls(tiny_served, moments_of(tiny_served, row[None])) for row in x
        ))  # fmt: skip

    asyncio.run(run_all())
    passes_of_one = 2  # the whole Jacobian, and the indicators'; D = 1 needs no others
    assert executor.batcher.passes < len(x) * passes_of_one


def test_the_algebra_runs_on_neither_the_event_loop_nor_the_batchers_thread(
    executor: Executor, tiny_served: Model
) -> None:
    names: list[str] = []

    def calls() -> Calls[int]:
        x = np.ones((1, 8), np.float32)
        for _ in range(3):
            yield Call("reconstruct", {"x": x, **tiny_served.noise_level(1)})
            names.append(threading.current_thread().name)
        return len(names)

    assert asyncio.run(executor.run_calls(tiny_served, calls())) == 3
    [name] = set(names)
    assert name not in ("batcher", threading.current_thread().name)


def test_rows_may_change_between_calls_and_the_load_returns_to_zero(
    executor: Executor, tiny_served: Model
) -> None:
    def calls() -> Calls[list[int]]:
        rows = []
        for n in (300, 2, 700, 1):  # more and fewer than fit into a pass
            x = np.ones((n, 8), np.float32)
            out = yield Call("reconstruct", {"x": x, **tiny_served.noise_level(n)})
            rows.append(len(out["mean"]))
        return rows

    assert asyncio.run(executor.run_calls(tiny_served, calls())) == [300, 2, 700, 1]
    assert executor.batcher.load == 0


class NanModel(Model):
    """A model whose outputs are NaN for rows that start with a 7."""

    def run(self, graph: str, **inputs: Any) -> Arrays:
        outputs = super().run(graph, **inputs)
        bad = inputs["x"][:, 0] == 7
        return {k: np.where(bad.reshape(-1, *[1] * (v.ndim - 1)), np.nan, v)
                for k, v in outputs.items()}  # fmt: skip


def test_a_row_with_nan_fails_alone(executor: Executor, tiny_served: Model) -> None:
    model = NanModel(tiny_served.folder, tiny_served.manifest, threads=1)

    def calls(first: float) -> Calls[Arrays]:
        x = np.full((1, 8), first, np.float32)
        return (yield Call("reconstruct", {"x": x, **model.noise_level(1)}))

    async def run_both() -> Any:
        both = (executor.run_calls(model, calls(first)) for first in (7.0, 0.5))
        return await asyncio.gather(*both, return_exceptions=True)

    bad, good = asyncio.run(run_both())
    assert isinstance(bad, UnusableAnswerError) and np.isfinite(good["mean"]).all()
    assert executor.batcher.load == 0


def test_an_error_in_the_algebra_reaches_the_caller(executor: Executor, tiny_served: Model) -> None:
    def calls() -> Calls[None]:
        yield Call("reconstruct", {"x": np.ones((1, 8), np.float32), **tiny_served.noise_level(1)})
        raise np.linalg.LinAlgError("did not converge")

    with pytest.raises(np.linalg.LinAlgError):
        asyncio.run(executor.run_calls(tiny_served, calls()))
    assert executor.batcher.load == 0


def test_a_cancelled_request_stops_before_its_next_pass(
    executor: Executor, tiny_served: Model
) -> None:
    started, calls_made = threading.Event(), []

    def calls() -> Calls[None]:
        while True:
            level = tiny_served.noise_level(1)
            yield Call("reconstruct", {"x": np.ones((1, 8), np.float32), **level})
            calls_made.append(1)
            started.set()

    async def cancel() -> None:
        task = asyncio.create_task(executor.run_calls(tiny_served, calls()))
        await asyncio.get_running_loop().run_in_executor(None, started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while executor.batcher.load:  # the test's time limit ends this loop if the job goes on
            await asyncio.sleep(0.01)
        made = len(calls_made)
        await asyncio.sleep(0.05)
        assert len(calls_made) == made

    asyncio.run(cancel())
