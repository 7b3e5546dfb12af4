"""Run graphs and other computation off the event loop.

Graphs run on the batcher's thread, where requests share passes. Other computation (eigenvectors,
first states) runs on the algebra thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from localmoments.arrays import Arrays, Floats
from localmoments.graph_calls import Calls
from localmoments.model import Model
from service.engine.batcher import Batcher
from service.engine.calls_job import CallsJob
from service.engine.job import Job, OneShot, ResultJob

P = ParamSpec("P")
T = TypeVar("T")

WAKE_AFTER_JOBS = 16


class Executor:
    """Run jobs on the batcher, and functions on the algebra thread."""

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self._wakes_on: asyncio.AbstractEventLoop | None = None  # loop with a scheduled wake-up
        self._new_jobs = 0  # added since the batcher was woken
        self._algebra = ThreadPoolExecutor(max_workers=1, thread_name_prefix="algebra")

    async def run(self, model: Model, graph: str, **inputs: Floats) -> Arrays:
        """Run one pass of a graph and return its outputs.

        Raises:
            UnusableAnswerError: an output is NaN or infinite.
        """
        return await self.run_job(OneShot(model, graph, inputs))

    async def run_job(self, job: ResultJob[T]) -> T:
        """Run a job and return its result.

        A caller that is cancelled stops the job before its next pass.
        """
        self.start(job)
        try:
            return await job.result
        except asyncio.CancelledError:
            job.cancelled = True
            raise

    async def run_calls(self, model: Model, calls: Calls[T]) -> T:
        """Run a generator of graph calls as one job and return its result.

        Raises:
            UnusableAnswerError: an output is NaN or infinite.
        """
        return await self.run_job(CallsJob(self.batcher, self._algebra, model, calls))

    def start(self, job: Job) -> None:
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
        """Call a function on the algebra thread and return its result. Calls run in order."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._algebra, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Stop both threads; waiting jobs fail with ComputeError."""
        self.batcher.close()
        self._algebra.shutdown()  # last: a job that it resumes now fails with ComputeError
