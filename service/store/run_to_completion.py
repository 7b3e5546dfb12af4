"""A command that has begun is never abandoned.

A caller that is cancelled waits until its command is over: so it is known what happened, and no
connection is left with an answer that belongs to somebody else.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from localmoments.errors import StoreError

T = TypeVar("T")


async def finished(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]] | None = None
) -> T:
    """The work's result. If we are cancelled it still ends, and is undone where that is asked."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _outlast(task)
        if undo and not task.cancelled() and not task.exception():
            undoing = asyncio.create_task(_quietly(undo(task.result())))
            await _outlast(undoing)
        raise


async def _outlast(task: asyncio.Task[Any]) -> None:
    """Wait for it, however often we are cancelled meanwhile; its error is nobody's any more."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


async def _quietly(work: Awaitable[None]) -> None:
    with contextlib.suppress(StoreError):
        await work
