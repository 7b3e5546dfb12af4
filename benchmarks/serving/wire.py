"""HTTP/1.1 from the client's side with as little as it takes: bytes out, a status and bytes in.

A load generator shares two cores with the server that it measures, so requests are built once and
answers are only measured: the status, where the body ends, and, for streams, the body's pieces.
"""

import asyncio
import re
from collections.abc import Callable
from time import perf_counter
from typing import cast

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
END = b"\r\n\r\n"

Piece = Callable[["Connection", bytes], None]
Answered = Callable[["Connection", int], None]


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of a request; underscores in headers' names stand for dashes."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + END + body


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request at a time."""

    def __init__(self, answered: Answered, piece: Piece | None = None) -> None:
        self.sent = 0.0  # when the request under way was sent, or was due
        self.status = 0
        self.closed = False
        self._answered, self._piece = answered, piece
        self._head = bytearray()
        self._left = 0  # bytes of the body, or of a chunk with its line end
        self._chunks: Chunks | None = None
        self._in_body = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, data: bytes, due: float | None = None) -> None:
        self.sent = perf_counter() if due is None else due
        self.status = 0
        self._transport.write(data)

    def close(self) -> None:
        self.closed = True
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            self._answered(self, 0)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head += data
            end = self._head.find(END)
            if end < 0:
                return
            data = self._begin_body(end)
        if self._chunks is not None:
            self._chunk(data)
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
        self._chunks = Chunks() if CHUNKED.search(head) else None
        self._in_body = True
        return rest

    def _chunk(self, data: bytes) -> None:
        assert self._chunks is not None
        for piece in self._chunks.feed(data):
            self._pass_on(piece)
        if self._chunks.ended:
            self._finish()

    def _pass_on(self, data: bytes) -> None:
        if self._piece is not None and data:
            self._piece(self, data)

    def _finish(self) -> None:
        self._in_body, self._chunks = False, None
        self._answered(self, self.status)


class Chunks:
    """The chunked coding, taken off."""

    def __init__(self) -> None:
        self.ended = False
        self._left = 0  # of the chunk under way, its line end counted
        self._line = b""  # a size that is not yet there as a whole

    def feed(self, data: bytes) -> list[bytes]:
        pieces, at = [], 0
        while at < len(data) and not self.ended:
            if self._left:
                stop = at + self._left
                pieces.append(data[at : max(at, min(stop - 2, len(data)))])
                taken = min(stop, len(data)) - at
                self._left, at = self._left - taken, at + taken
            else:
                at = self._size(data, at)
        return pieces

    def _size(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        if end < 0:
            self._line += data[at:]
            return len(data)
        size = int((self._line + data[at:end]).split(b";")[0], 16)
        self._line = b""
        self.ended = size == 0  # a line end follows, which the next answer's head begins with
        self._left = size + 2
        return end + 1
