"""The executor: turns in order, errors back to their caller, nothing that is not finite."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from localmoments.errors import UnusableAnswerError
from localmoments.model import Arrays, Model
from service.engine.batcher import Batcher
from service.engine.executor import Executor


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor(Batcher(256, 8192))
    yield executor
    executor.close()


def test_calls_take_turns_on_one_other_thread(executor: Executor) -> None:
    order: list[int] = []

    async def all_of_them() -> list[str]:
        async def one(i: int) -> str:
            await executor.call(order.append, i)
            return await executor.call(lambda: threading.current_thread().name)

        return await asyncio.gather(*(one(i) for i in range(5)))

    names = set(asyncio.run(all_of_them()))
    assert len(names) == 1 and threading.current_thread().name not in names
    assert order == sorted(order)


def test_an_error_reaches_its_caller_and_the_next_call_is_served(executor: Executor) -> None:
    async def one_bad_one_good() -> int:
        with pytest.raises(ZeroDivisionError):
            await executor.call(lambda: 1 // 0)
        return await executor.call(len, "abc")

    assert asyncio.run(one_bad_one_good()) == 3


def test_a_graph_runs_as_the_model_runs_it(executor: Executor, tiny_served: Model) -> None:
    x = np.ones((2, 8), np.float32)
    level = tiny_served.noise_level(2)
    out = asyncio.run(executor.run(tiny_served, "reconstruct", x=x, **level))
    assert np.array_equal(out["mean"], tiny_served.run("reconstruct", x=x, **level)["mean"])


class Overflowing(Model):
    """A model whose weights are too large for what it is asked."""

    def run(self, graph: str, **inputs: np.ndarray) -> Arrays:  # type: ignore[type-arg]
        return {"mean": np.full((1, 8), np.inf, np.float32)}


def test_what_is_not_finite_fails_loudly(executor: Executor, tiny_served: Model) -> None:
    manifest = replace(tiny_served.manifest, name="wild")
    model = Overflowing(tiny_served.folder, manifest)
    with pytest.raises(UnusableAnswerError, match="wild@1 gave NaN or infinity"):
        asyncio.run(executor.run(model, "reconstruct", x=np.ones((1, 8), np.float32)))
