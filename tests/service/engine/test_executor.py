"""The executor: calls run in order, errors reach their caller, and NaN or infinity is an error."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from localmoments.arrays import Arrays
from localmoments.errors import UnusableAnswerError
from localmoments.model import Model
from service.engine.batcher import Batcher
from service.engine.executor import Executor


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor(Batcher(256, 8192))
    yield executor
    executor.close()


def test_calls_run_in_order_on_one_other_thread(executor: Executor) -> None:
    order: list[int] = []

    async def call_all() -> list[str]:
        async def call(i: int) -> str:
            await executor.call(order.append, i)
            return await executor.call(lambda: threading.current_thread().name)

        return await asyncio.gather(*(call(i) for i in range(5)))

    names = set(asyncio.run(call_all()))
    assert len(names) == 1 and threading.current_thread().name not in names
    assert order == sorted(order)


def test_an_error_reaches_its_caller_and_the_next_call_runs(executor: Executor) -> None:
    async def fail_then_succeed() -> int:
        with pytest.raises(ZeroDivisionError):
            await executor.call(lambda: 1 // 0)
        return await executor.call(len, "abc")

    assert asyncio.run(fail_then_succeed()) == 3


def test_a_graph_gives_what_the_model_gives_in_process(
    executor: Executor, tiny_served: Model
) -> None:
    x = np.ones((2, 8), np.float32)
    level = tiny_served.noise_level(2)
    out = asyncio.run(executor.run(tiny_served, "reconstruct", x=x, **level))
    assert np.array_equal(out["mean"], tiny_served.run("reconstruct", x=x, **level)["mean"])


class OverflowingModel(Model):
    """A model whose outputs are infinite."""

    def run(self, graph: str, **inputs: np.ndarray) -> Arrays:  # type: ignore[type-arg]
        return {"mean": np.full((1, 8), np.inf, np.float32)}


def test_an_infinite_output_is_an_error(executor: Executor, tiny_served: Model) -> None:
    manifest = replace(tiny_served.manifest, name="wild")
    model = OverflowingModel(tiny_served.folder, manifest)
    with pytest.raises(UnusableAnswerError, match="wild@1 returned NaN or infinity"):
        asyncio.run(executor.run(model, "reconstruct", x=np.ones((1, 8), np.float32)))
