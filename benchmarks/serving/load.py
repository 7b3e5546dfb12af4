"""The load: closed loops of clients, open-loop arrivals, and streams that are read as they come.

Everything runs on one event loop in one process. Times are from the moment a request was sent,
or in an open loop from the moment it was due, so that a queue in the generator counts as well.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import uvloop

from serving.wire import Connection

T = TypeVar("T")
Address = tuple[str, int]


def run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@dataclass
class Tally:
    """What came back in the time that counts; seconds by status, 0 for a lost connection."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    elapsed: float = 0.0
    unsent: int = 0  # due, but never sent

    def add(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    def figures(self, rows: int = 1) -> dict[str, float]:
        """Throughput and percentiles (ms) of answers that were 200; the rest is counted."""
        good = np.asarray(self.seconds.get(200, []))
        p50, p99 = np.percentile(good, [50, 99]) * 1e3 if len(good) else (np.nan, np.nan)
        errors = sum(len(times) for status, times in self.seconds.items() if status != 200)
        rate = len(good) / self.elapsed
        return {"requests_per_s": rate, "rows_per_s": rows * rate, "p50_ms": float(p50),
                "p99_ms": float(p99), "errors": float(errors + self.unsent)}  # fmt: skip


async def closed(
    address: Address, data: bytes, clients: int, seconds: float, warm_up: float
) -> Tally:
    """`clients` that each send the next request when the last is answered."""
    tally, began, over = Tally(), perf_counter() + warm_up, asyncio.Event()

    def answered(connection: Connection, status: int) -> None:
        now = perf_counter()
        if began <= connection.sent and now <= began + seconds:
            tally.add(status, now - connection.sent)
        if now < began + seconds and not connection.closed:
            connection.send(data)
        else:
            over.set()

    async with connected(address, clients, answered) as connections:
        for connection in connections:
            connection.send(data)
        await asyncio.wait_for(over.wait(), warm_up + seconds + 60)
    tally.elapsed = seconds
    return tally


class Arrivals:
    """An open loop: requests are due at a fixed rate, whatever becomes of those before."""

    def __init__(self, address: Address, data: bytes, most: int) -> None:
        self.tally = Tally()
        self._address, self._data, self._most = address, data, most
        self._counts_from = 0.0
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._due: deque[float] = deque()  # without a connection yet

    async def run(self, rate: float, seconds: float, warm_up: float = 0.0) -> Tally:
        """Those that are due in the warm-up are sent and not counted."""
        async with connected(self._address, self._most, self._answered) as connections:
            self._idle, self._all = list(connections), set(connections)
            began, sent, total = perf_counter(), 0, int(rate * (warm_up + seconds))
            self._counts_from = began + warm_up
            while sent < total:
                due = min(total, int((perf_counter() - began) * rate))
                for i in range(sent, due):
                    self._send(began + (i + 1) / rate)
                sent = due
                await asyncio.sleep(0.0005)
            await self._drained()
            self.tally.elapsed = perf_counter() - self._counts_from
        return self.tally

    def _send(self, due: float) -> None:
        if self._idle:
            self._idle.pop().send(self._data, due)
        else:
            self._due.append(due)

    def _answered(self, connection: Connection, status: int) -> None:
        if connection.sent >= self._counts_from:
            self.tally.add(status, perf_counter() - connection.sent)
        if connection.closed:
            self._all.discard(connection)
        elif self._due:
            connection.send(self._data, self._due.popleft())
        else:
            self._idle.append(connection)

    async def _drained(self, most: float = 30.0) -> None:
        end = perf_counter() + most
        while (len(self._idle) < len(self._all) or self._due) and perf_counter() < end:
            await asyncio.sleep(0.005)
        self.tally.unsent = len(self._due)


@dataclass
class Stream:
    """What one streamed answer has brought so far."""

    lines: int = 0
    size: int = 0  # bytes
    status: int = 0
    first: float | None = None  # the time of its first sample: line two
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # when, and lines by then
    ended: float | None = None
    last: bytes = b""  # the end of what came


async def streams(
    address: Address,
    requests: Sequence[bytes],
    until: Callable[[list[Stream]], Coroutine[Any, Any, T]],
) -> tuple[T, list[Stream]]:
    """Send all, count lines as they come while `until` runs, then leave."""
    found: dict[Connection, Stream] = {}

    def piece(connection: Connection, data: bytes) -> None:
        stream = found[connection]
        stream.size += len(data)
        stream.last = (stream.last + data)[-512:] if len(data) < 512 else data[-512:]
        if more := data.count(b"\n"):
            stream.lines += more
            stream.arrivals.append((perf_counter(), stream.lines))
            if stream.first is None and stream.lines >= 2:
                stream.first = stream.arrivals[-1][0]

    def answered(connection: Connection, status: int) -> None:
        found[connection].status, found[connection].ended = status, perf_counter()

    async with connected(address, len(requests), answered, piece) as connections:
        found.update((connection, Stream()) for connection in connections)
        for connection, data in zip(connections, requests, strict=True):
            connection.send(data)
        return await until(list(found.values())), list(found.values())


async def fetch(address: Address, data: bytes, timeout: float = 60) -> tuple[int, bytes]:
    """One request's status and body."""
    body, done = bytearray(), asyncio.get_running_loop().create_future()

    def answered(connection: Connection, status: int) -> None:
        if not done.done():
            done.set_result(status)

    async with connected(address, 1, answered, lambda _, data: body.extend(data)) as [connection]:
        connection.send(data)
        return await asyncio.wait_for(done, timeout), bytes(body)


async def whole(address: Address, data: bytes) -> tuple[float, Stream]:
    """Seconds that one request takes from being sent to its last byte."""
    began = perf_counter()

    async def until(found: list[Stream]) -> float:
        nonlocal began
        began = perf_counter()
        while found[0].ended is None:
            await asyncio.sleep(0.002)  # the time that counts is `ended`
        return found[0].ended - began

    seconds, [stream] = await streams(address, [data], until)
    return seconds, stream


@contextlib.asynccontextmanager
async def connected(
    address: Address,
    count: int,
    answered: Callable[[Connection, int], None],
    piece: Callable[[Connection, bytes], None] | None = None,
) -> AsyncIterator[list[Connection]]:
    loop, made = asyncio.get_running_loop(), []
    try:
        for _ in range(count):
            pair = await loop.create_connection(lambda: Connection(answered, piece), *address)
            made.append(pair[1])
        yield made
    finally:
        for connection in made:
            connection.close()
