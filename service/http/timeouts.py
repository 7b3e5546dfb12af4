"""Ends of a request before its response: a slow client (`Watchdog`), a slow computation
(`time_limit`), and a client that has disconnected (`cancel_on_disconnect`)."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from time import monotonic

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from localmoments.errors import LateError

RESOLUTION_SECONDS = 0.05


class Wait:
    """An await that the watchdog may cancel; use one object for all awaits of a request."""

    deadline = math.inf  # by `monotonic()`; infinity while nothing is awaited
    task: "asyncio.Task[object] | None" = None
    is_over = False  # the watchdog has cancelled the task

    def start(self, seconds: float) -> None:
        self.task, self.is_over = asyncio.current_task(), False
        self.deadline = monotonic() + seconds

    def stop(self) -> float:
        """Return the seconds that were left."""
        left, self.deadline = self.deadline - monotonic(), math.inf
        return left

    def catch(self) -> bool:
        """Tell in `except CancelledError` whether the watchdog was the cause."""
        if self.is_over and self.task is not None:
            self.task.uncancel()
        return self.is_over


class Watchdog:
    """Cancel awaits that are past their deadline, with one timer for all of them.

    `asyncio.timeout` sets a timer for each await. For a request that hardly ever has to wait, these
    timers would cost more than everything else in the middleware. The price is a resolution of
    `RESOLUTION_SECONDS`.
    """

    def __init__(self) -> None:
        self._waits: set[Wait] = set()
        self._is_running = False

    def add(self, wait: Wait) -> None:
        self._waits.add(wait)
        if not self._is_running:
            self._schedule()

    def remove(self, wait: Wait) -> None:
        self._waits.discard(wait)

    def _schedule(self) -> None:
        self._is_running = True
        asyncio.get_running_loop().call_later(RESOLUTION_SECONDS, self._check)

    def _check(self) -> None:
        now = monotonic()
        for wait in self._waits:
            if now >= wait.deadline and not wait.is_over and wait.task is not None:
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


@contextlib.asynccontextmanager
async def cancel_on_disconnect(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block if the client disconnects within it, and raise ClientDisconnect.

    Cancelled work leaves the batcher's queue.
    """
    task = asyncio.current_task()
    assert task is not None
    is_gone = False

    def cancel(watcher: "asyncio.Task[None]") -> None:
        nonlocal is_gone
        if not watcher.cancelled() and watcher.exception() is None:
            is_gone = True
            task.cancel()

    watcher = asyncio.create_task(wait_for_disconnect(receive))
    watcher.add_done_callback(cancel)
    try:
        yield
    except asyncio.CancelledError:
        if not is_gone or task.uncancel():  # somebody else has cancelled the task, too
            raise
        raise ClientDisconnect from None
    finally:
        watcher.remove_done_callback(cancel)  # outside of the block nothing is cancelled
        watcher.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
