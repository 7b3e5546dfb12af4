"""What the workers of one service tell each other (service.workers): their figures.

Each gives its own to whoever opens its socket, and so any of them can answer for all.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

SECONDS = 2.0  # for a sibling to answer
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Siblings:
    """One's place among them."""

    folder: Path
    number: int
    count: int

    @contextlib.asynccontextmanager
    async def telling(self, words: Callable[[], bytes]) -> AsyncIterator[None]:
        """While this lasts, who asks is told."""

        async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.closing(writer):
                writer.write(words())
                await writer.drain()

        path = self._socket(self.number)
        path.unlink(missing_ok=True)  # of a predecessor that was killed
        async with await asyncio.start_unix_server(tell, path):
            yield

    async def are_there(self) -> None:
        """Once all have begun to serve."""
        while not all(self._socket(number).exists() for number in range(self.count)):
            await asyncio.sleep(POLL_SECONDS)

    async def told(self) -> list[bytes]:
        """By all others that answer: one that has just been killed does not."""
        others = [number for number in range(self.count) if number != self.number]
        return [words for words in await asyncio.gather(*map(self._ask, others)) if words]

    async def _ask(self, number: int) -> bytes:
        try:
            async with asyncio.timeout(SECONDS):
                reader, writer = await asyncio.open_unix_connection(self._socket(number))
                with contextlib.closing(writer):
                    return await reader.read()
        except OSError as error:  # TimeoutError is one
            log.warning("worker %d says nothing of its figures: %s", number, error or "too slow")
            return b""

    def _socket(self, number: int) -> Path:
        return self.folder / str(number)
