"""The load generator of the serving benchmark, against servers that close connections."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from serving.load import LOST, ClosedLoop, Connection, OpenLoop, build_request, connect

REQUEST = build_request("POST", "/", b"{}")
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n%s\r\n{}"


@asynccontextmanager
async def start_server(
    responses: int, header: bytes = b"", delay: float = 0.0
) -> AsyncIterator[tuple[str, int]]:
    """Serve connections that are closed `delay` seconds after that many responses."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for _ in range(responses):
                await reader.readexactly(len(REQUEST))
                writer.write(RESPONSE % header)
            await asyncio.sleep(delay)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield host, port


@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_an_open_loop_drops_idle_connections_that_the_server_closes(delay: float) -> None:
    async def measure() -> None:
        async with start_server(responses=1, header=b"connection: close\r\n", delay=delay) as at:
            tally = await OpenLoop(at, REQUEST, 8).run(rate=200, seconds=0.5)
        assert set(tally.latencies) == {200}
        assert tally.count(200) == 100 and tally.unsent == 0

    asyncio.run(measure())


def test_an_open_loop_survives_connections_that_close_without_notice() -> None:
    async def measure() -> None:
        async with start_server(responses=3) as at:
            tally = await OpenLoop(at, REQUEST, 8).run(rate=200, seconds=0.5)
        assert set(tally.latencies) <= {200, LOST}
        assert tally.count(200) + tally.count(LOST) == 100
        assert tally.count(200) >= 50

    asyncio.run(measure())


def test_a_closed_loop_reconnects_and_measures_to_the_end() -> None:
    async def measure() -> None:
        async with start_server(responses=3) as at:
            tally = await ClosedLoop(at, REQUEST).run(clients=2, seconds=0.5, warm_up=0.1)
        assert tally.elapsed == 0.5
        assert tally.count(200) > 20  # far more than 2 connections with 3 responses each

    asyncio.run(measure())


def test_a_connection_that_closes_while_idle_is_not_a_lost_request() -> None:
    statuses: list[int] = []

    async def measure() -> None:
        def note(connection: Connection, status: int) -> None:
            statuses.append(status)

        async with start_server(responses=1) as at, connect(at, 1, note) as [connection]:
            connection.send(REQUEST)
            while connection.is_open:
                await asyncio.sleep(0.005)

    asyncio.run(measure())
    assert statuses == [200]
