"""A load generator for HTTP/1.1: closed loop, open loop, and streams that are read as they arrive.

The generator shares the machine with the server that it measures, so it does little: requests are
built once, as bytes, and of a response it looks at the status, the end of the body and, for
streams, the lines. Everything runs on one event loop. Latency counts from the moment a request was
sent; in an open loop, from the moment it was due, so that a delay in the generator counts too.
"""

import asyncio
import contextlib
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np
import uvloop

T = TypeVar("T")
Address = tuple[str, int]
OnResponse = Callable[["Connection", int], None]
OnData = Callable[["Connection", bytes], None]

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
END = b"\r\n\r\n"
LOST = 0  # status of a request whose connection was closed before the response was complete


def build_request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request; underscores in header names become dashes."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + END + body


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new uvloop event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


class Connection(asyncio.Protocol):
    """A keep-alive connection that carries one request at a time."""

    def __init__(self, on_response: OnResponse, on_data: OnData | None = None) -> None:
        self.sent = 0.0  # when the current request was sent, or was due
        self.status = 0
        self.is_busy = False
        self._on_response, self._on_data = on_response, on_data
        self._closed = False
        self._head = bytearray()
        self._left = 0  # bytes of the body that are still to come
        self._chunks: ChunkDecoder | None = None
        self._in_body = False
        self._last = False  # the server closes the connection after this response

    @property
    def is_open(self) -> bool:
        """Whether the next request can be sent; False as soon as the server closes its side."""
        return not self._closed and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, data: bytes, due: float | None = None) -> None:
        """Send a request; the caller checks `is_open` first."""
        self.sent = perf_counter() if due is None else due
        self.status, self.is_busy = 0, True
        self._transport.write(data)

    def close(self) -> None:
        self._closed = True
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        was_open, self._closed = not self._closed, True
        if was_open and self.is_busy:  # an idle connection may be closed at any time
            self.is_busy = False
            self._on_response(self, LOST)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head += data
            end = self._head.find(END)
            if end < 0:
                return
            data = self._begin_body(end)
        if self._chunks is not None:
            for chunk in self._chunks.feed(data):
                self._pass_on(chunk)
            if self._chunks.ended:
                self._finish()
        else:
            self._left -= len(data)
            self._pass_on(data)
            if self._left <= 0:
                self._finish()

    def _begin_body(self, end: int) -> bytes:
        head, rest = bytes(self._head[: end + 2]).lstrip(), bytes(self._head[end + 4 :])
        self._head.clear()
        self.status = int(head[9:12])
        length = LENGTH.search(head)
        self._left = int(length[1]) if length else 0
        self._chunks = ChunkDecoder() if CHUNKED.search(head) else None
        self._last = CLOSE.search(head) is not None
        self._in_body = True
        return rest

    def _pass_on(self, data: bytes) -> None:
        if self._on_data is not None and data:
            self._on_data(self, data)

    def _finish(self) -> None:
        self._in_body, self._chunks, self.is_busy = False, None, False
        if self._last:
            self.close()
        self._on_response(self, self.status)


class ChunkDecoder:
    """Decode the chunked transfer coding."""

    def __init__(self) -> None:
        self.ended = False
        self._left = 0  # bytes of the current chunk, including its line end
        self._line = b""  # an incomplete chunk size

    def feed(self, data: bytes) -> list[bytes]:
        pieces, at = [], 0
        while at < len(data) and not self.ended:
            if self._left:
                stop = at + self._left
                pieces.append(data[at : max(at, min(stop - 2, len(data)))])
                taken = min(stop, len(data)) - at
                self._left, at = self._left - taken, at + taken
            else:
                at = self._read_size(data, at)
        return pieces

    def _read_size(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        if end < 0:
            self._line += data[at:]
            return len(data)
        size = int((self._line + data[at:end]).split(b";")[0], 16)
        self._line = b""
        self.ended = size == 0  # the line end that follows is skipped with the next head
        self._left = size + 2
        return end + 1


@dataclass
class Tally:
    """The responses of a measurement: latencies in seconds by status, LOST included."""

    latencies: dict[int, list[float]] = field(default_factory=dict)
    elapsed: float = 0.0  # seconds
    unsent: int = 0  # due, but never sent

    def add(self, status: int, latency: float) -> None:
        self.latencies.setdefault(status, []).append(latency)

    def count(self, status: int) -> int:
        return len(self.latencies.get(status, ()))

    def rate(self, status: int = 200) -> float:
        """Responses with this status per second."""
        return self.count(status) / self.elapsed

    def percentile(self, status: int, percent: float) -> float:
        """A percentile of the latency in ms; NaN if there was no such response."""
        latencies = self.latencies.get(status)
        return float(1e3 * np.percentile(latencies, percent)) if latencies else float("nan")

    def summarise(self, rows: int = 1) -> dict[str, float]:
        """Throughput and latency of responses with status 200, and the number of all others."""
        others = sum(len(times) for status, times in self.latencies.items() if status != 200)
        return {
            "requests_per_s": self.rate(), "rows_per_s": rows * self.rate(),
            "p50_ms": self.percentile(200, 50), "p99_ms": self.percentile(200, 99),
            "errors": float(others + self.unsent),
        }  # fmt: skip


class ClosedLoop:
    """Clients that each send the next request when the last one is answered.

    A client whose connection the server closes opens a new one.
    """

    def __init__(self, address: Address, data: bytes) -> None:
        self._address, self._data = address, data
        self._tally = Tally()
        self._start = self._end = 0.0
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, clients: int, seconds: float, warm_up: float) -> Tally:
        """Send requests for `warm_up + seconds`; those of the warm-up are not counted."""
        self._start = perf_counter() + warm_up
        self._end = self._start + seconds
        try:
            await asyncio.gather(*(self._connect() for _ in range(clients)))
            await asyncio.sleep(self._end - perf_counter())
        finally:
            for connection in self._connections:
                connection.close()
            for task in self._tasks:
                task.cancel()
        self._tally.elapsed = seconds
        return self._tally

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(self._on_response), *self._address
        )
        self._connections.add(connection)
        connection.send(self._data)

    def _on_response(self, connection: Connection, status: int) -> None:
        now = perf_counter()
        if self._start <= connection.sent and now <= self._end:
            self._tally.add(status, now - connection.sent)
        if now >= self._end:
            return
        if connection.is_open:
            connection.send(self._data)
        else:
            self._connections.discard(connection)
            task = asyncio.create_task(self._connect())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class OpenLoop:
    """Requests that are due at a fixed rate, however long the earlier ones take.

    A request takes an idle connection, or opens one up to `max_connections`. Connections that the
    server closes while they are idle are dropped.
    """

    def __init__(self, address: Address, data: bytes, max_connections: int) -> None:
        self._address, self._data, self._max = address, data, max_connections
        self._tally = Tally()
        self._start = 0.0
        self._idle: list[Connection] = []
        self._connections: set[Connection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[float] = deque()  # due times of requests without a connection

    async def run(self, rate: float, seconds: float, warm_up: float = 0.0) -> Tally:
        """Send `rate` requests per second; those due during the warm-up are not counted."""
        began, sent, total = perf_counter(), 0, int(rate * (warm_up + seconds))
        self._start = began + warm_up
        try:
            while sent < total:
                due = min(total, int((perf_counter() - began) * rate))
                for i in range(sent, due):
                    self._send(began + (i + 1) / rate)
                sent = due
                await asyncio.sleep(0.0005)
            await self._drain()
            self._tally.elapsed = perf_counter() - self._start
        finally:
            for task in self._opening:
                task.cancel()
            for connection in self._connections:
                connection.close()
        return self._tally

    def _send(self, due: float) -> None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                connection.send(self._data, due)
                return
            self._connections.discard(connection)
        self._waiting.append(due)
        self._open_connection()

    def _open_connection(self) -> None:
        if len(self._connections) + len(self._opening) < self._max:
            task = asyncio.create_task(self._connect())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(self._on_response), *self._address
        )
        self._connections.add(connection)
        self._use(connection)

    def _on_response(self, connection: Connection, status: int) -> None:
        if connection.sent >= self._start:
            self._tally.add(status, perf_counter() - connection.sent)
        if connection.is_open:
            self._use(connection)
        else:
            self._connections.discard(connection)
            if self._waiting:
                self._open_connection()

    def _use(self, connection: Connection) -> None:
        if self._waiting:
            connection.send(self._data, self._waiting.popleft())
        else:
            self._idle.append(connection)

    async def _drain(self, limit: float = 30.0) -> None:
        """Wait until all requests are answered, at most `limit` seconds."""
        end = perf_counter() + limit
        while perf_counter() < end and (self._waiting or any(c.is_busy for c in self._connections)):
            await asyncio.sleep(0.005)
        self._tally.unsent = len(self._waiting)


@dataclass
class Stream:
    """What has arrived of one streamed response."""

    lines: int = 0
    size: int = 0  # bytes
    status: int = 0
    first_sample: float | None = None  # when line two arrived, which holds the first sample
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # time, lines until then
    ended: float | None = None
    tail: bytes = b""  # the last bytes


async def read_streams(
    address: Address,
    requests: Sequence[bytes],
    until: Callable[[list[Stream]], Coroutine[Any, Any, T]],
) -> tuple[T, list[Stream]]:
    """Send all requests, count lines as they arrive while `until` runs, then disconnect."""
    streams: dict[Connection, Stream] = {}

    def on_data(connection: Connection, data: bytes) -> None:
        stream = streams[connection]
        stream.size += len(data)
        stream.tail = (stream.tail + data)[-512:] if len(data) < 512 else data[-512:]
        if lines := data.count(b"\n"):
            stream.lines += lines
            stream.arrivals.append((perf_counter(), stream.lines))
            if stream.first_sample is None and stream.lines >= 2:
                stream.first_sample = stream.arrivals[-1][0]

    def on_response(connection: Connection, status: int) -> None:
        streams[connection].status, streams[connection].ended = status, perf_counter()

    async with connect(address, len(requests), on_response, on_data) as connections:
        streams.update((connection, Stream()) for connection in connections)
        for connection, data in zip(connections, requests, strict=True):
            connection.send(data)
        return await until(list(streams.values())), list(streams.values())


async def fetch(address: Address, data: bytes, timeout: float = 60) -> tuple[int, bytes]:
    """Send one request and return status and body."""
    body, response = bytearray(), asyncio.get_running_loop().create_future()

    def on_response(connection: Connection, status: int) -> None:
        if not response.done():
            response.set_result(status)

    async with connect(address, 1, on_response, lambda _, data: body.extend(data)) as [connection]:
        connection.send(data)
        return await asyncio.wait_for(response, timeout), bytes(body)


async def time_request(address: Address, data: bytes) -> tuple[float, Stream]:
    """Return the seconds from sending a request to its last byte, and the stream."""
    start = perf_counter()

    async def until(streams: list[Stream]) -> float:
        nonlocal start
        start = perf_counter()
        while streams[0].ended is None:
            await asyncio.sleep(0.002)  # does not add to the result, which uses `ended`
        return streams[0].ended - start

    seconds, [stream] = await read_streams(address, [data], until)
    return seconds, stream


@contextlib.asynccontextmanager
async def connect(
    address: Address, count: int, on_response: OnResponse, on_data: OnData | None = None
) -> AsyncIterator[list[Connection]]:
    """Open connections for the duration of the block."""
    loop, connections = asyncio.get_running_loop(), []
    try:
        for _ in range(count):
            _, connection = await loop.create_connection(
                lambda: Connection(on_response, on_data), *address
            )
            connections.append(connection)
        yield connections
    finally:
        for connection in connections:
            connection.close()


class BlockingClient:
    """One keep-alive connection with blocking calls, for latencies without an event loop."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def call(self, data: bytes) -> bytes:
        """Send a request and return the body; the response must be 200 with a length."""
        self._socket.sendall(data)
        response = b""
        while (end := response.find(END)) < 0:
            response += self._socket.recv(2**20)
        length = LENGTH.search(response[: end + 2])
        if not response.startswith(b"HTTP/1.1 200") or not length:
            raise RuntimeError(f"unexpected response: {response[:500]!r}")
        body = bytearray(response[end + 4 :])
        while len(body) < int(length[1]):
            body += self._socket.recv(2**20)
        return bytes(body)
