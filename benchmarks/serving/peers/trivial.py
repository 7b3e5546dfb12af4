"""A server that returns the same bytes for every request, without parsing it."""

import asyncio
import sys
from typing import cast

import uvloop

RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 8000\r\n\r\n" + b"0" * 8000


class Trivial(asyncio.Protocol):
    """Respond whenever the bytes of a whole request have arrived."""

    def __init__(self, size: int) -> None:
        self._size, self._received = size, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        while self._received >= self._size:
            self._received -= self._size
            self._transport.write(RESPONSE)


async def serve(port: int, size: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Trivial(size), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1]), int(sys.argv[2])))
