"""Time limits: for a slow client (`Watchdog`) and for a slow computation (`time_limit`)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import TypeVar

from localmoments.errors import LateError

T = TypeVar("T")

RESOLUTION_SECONDS = 0.05


class _Wait:
    """One await that may take too long."""

    def __init__(self, task: "asyncio.Task[object]", deadline: float) -> None:
        self.task, self.deadline, self.is_over = task, deadline, False


class Watchdog:
    """Limit many awaits with a single timer, to within `RESOLUTION_SECONDS`.

    `asyncio.timeout` sets a timer for each await. For a request that never has to wait, the timers
    would cost more than everything else that the middleware does.
    """

    def __init__(self) -> None:
        self._waits: set[_Wait] = set()
        self._is_running = False

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """Await, or raise TimeoutError after `seconds`."""
        task = asyncio.current_task()
        assert task is not None
        wait = _Wait(task, monotonic() + seconds)
        self._waits.add(wait)
        if not self._is_running:
            self._schedule()
        try:
            return await awaitable
        except asyncio.CancelledError:
            if not wait.is_over:
                raise
            task.uncancel()
            raise TimeoutError from None
        finally:
            self._waits.discard(wait)

    def _schedule(self) -> None:
        self._is_running = True
        asyncio.get_running_loop().call_later(RESOLUTION_SECONDS, self._check)

    def _check(self) -> None:
        now = monotonic()
        for wait in self._waits:
            if now >= wait.deadline and not wait.is_over:
                wait.is_over = True
                wait.task.cancel()
        self._is_running = False
        if self._waits:
            self._schedule()


def time_limit(milliseconds: int | None) -> AbstractAsyncContextManager[None]:
    """Cancel the block after this many milliseconds and raise LateError; None sets no limit.

    Cancelled work leaves the batcher's queue.
    """
    return contextlib.nullcontext() if milliseconds is None else _limit(milliseconds)


@contextlib.asynccontextmanager
async def _limit(milliseconds: int) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(milliseconds / 1000):
            yield
    except TimeoutError:
        raise LateError(f"The request was not done within {milliseconds} ms.") from None
