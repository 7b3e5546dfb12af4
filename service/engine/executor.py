"""Run graphs and other computation off the event loop.

Graphs run on the batcher's thread, where requests share passes. Other computation (eigenvectors,
first states) runs on one more thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from localmoments.arrays import Floats, Named
from localmoments.model import Arrays, Model
from service.engine.batcher import Batcher
from service.engine.job import OneShot

P = ParamSpec("P")
T = TypeVar("T")

WAKE_AFTER_JOBS = 16


class Executor:
    """Run one-pass jobs on the batcher, and functions on a thread of their own."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self._wakes_on: asyncio.AbstractEventLoop | None = None  # loop with a scheduled wake-up
        self._new_jobs = 0  # added since the batcher was woken
        self._functions = ThreadPoolExecutor(max_workers=1, thread_name_prefix="functions")

    async def run(self, model: Model, graph: str, **inputs: Floats) -> Arrays:
        """Run one pass of a graph and return its outputs.

        A caller that is cancelled leaves the queue.

        Raises:
            UnusableAnswerError: an output is NaN or infinite.
        """
        return await self.run_job(OneShot(model, graph, inputs))

    async def run_job(self, job: OneShot) -> Named:
        """Run a job and return its outputs. A caller that is cancelled leaves the queue."""
        self.start(job)
        try:
            return await job.result
        except asyncio.CancelledError:
            job.cancelled = True
            raise

    def start(self, job: OneShot) -> None:
        """Queue a job without waiting for its `result`.

        The batcher wakes at the end of this loop iteration, or after WAKE_AFTER_JOBS jobs, so that
        requests read together share a pass while computing overlaps with reading.
        """
        self.batcher.add(job, wake=False)
        self._new_jobs += 1
        loop = asyncio.get_running_loop()
        if self._new_jobs >= WAKE_AFTER_JOBS:
            self._wake()
        elif self._wakes_on is not loop:
            self._wakes_on = loop
            loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._wakes_on, self._new_jobs = None, 0
        self.batcher.wake()

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the second thread and return its result. Calls run in order."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._functions, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Stop both threads; waiting jobs fail with ComputeError."""
        self._functions.shutdown(cancel_futures=True)
        self.batcher.close()
