"""Everything that computes: graphs by the batcher, the algebra around them on its own thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from localmoments.arrays import Floats, Named
from localmoments.model import Arrays, Model
from localmoments.transition import Transition
from service.engine.batcher import Batcher
from service.engine.chain_job import ChainJob, JobRange
from service.engine.job import OneShot

P = ParamSpec("P")
T = TypeVar("T")

ENOUGH = 16  # works that need not wait for more


class Executor:
    """The one way to run a graph, for one pass or for a chain of them."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self._waking: asyncio.AbstractEventLoop | None = None
        self._asleep = 0  # works that came since the batcher was woken
        self._algebra = ThreadPoolExecutor(max_workers=1, thread_name_prefix="algebra")

    async def run(self, model: Model, graph: str, **inputs: Floats) -> Arrays:
        """One pass of a graph; its outputs are finite. Who is cancelled leaves the queue."""
        return await self.finish(OneShot(model, graph, inputs))

    def begin(self, work: OneShot) -> None:
        """Its answer comes by itself; who does not want it any more says that it is `over`."""
        self.batcher.put(work)
        self._asleep += 1
        if self._asleep < ENOUGH:
            self._wake_soon()
        else:
            self._wake()

    async def finish(self, work: OneShot) -> Named:
        self.begin(work)
        try:
            return await work.answer
        except asyncio.CancelledError:
            work.over = True
            raise

    def _wake_soon(self) -> None:
        """Once the loop has done what it has at hand, or there is enough to begin with: what came
        together goes together, and yet one computes while the other reads."""
        loop = asyncio.get_running_loop()
        if self._waking is not loop:
            self._waking = loop
            loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._waking, self._asleep = None, 0
        self.batcher.wake()

    def walk(self, model: Model, walk: Transition, leg: JobRange) -> ChainJob:
        """A chain that walks from now on."""
        walking = ChainJob(self.batcher, model, walk, leg)
        walking.begin()
        return walking

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Anything else that takes its time."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._algebra, partial(function, *args, **kwargs))

    def close(self) -> None:
        self._algebra.shutdown(cancel_futures=True)
        self.batcher.close()
