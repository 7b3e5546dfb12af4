"""When the event loop's turn began: what it reads in one turn had all come by then.

A request that is read last has waited for all those that were read before it, and nothing else
knows: its connection hears of it only when it is read.
"""

import asyncio


class Turn:
    """Of one event loop, whose clock counts."""

    def __init__(self) -> None:
        self._since: float | None = None

    def since(self, loop: asyncio.AbstractEventLoop) -> float:
        """Asked for the first time in a turn it is now."""
        if self._since is None:
            self._since = loop.time()
            loop.call_soon(self._end)
        return self._since

    def _end(self) -> None:
        self._since = None
