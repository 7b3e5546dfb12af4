"""What is read in one turn of the event loop has waited since its beginning."""

import asyncio
import socket
from collections.abc import Callable
from time import monotonic, sleep

import pytest
import uvloop

from service.http.turn import Turn

WORK = 0.02  # seconds of each reader
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("make_loop", LOOPS)
def test_readers_of_one_turn_have_one_beginning_and_the_next_turn_has_another(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Three sockets have something at once; each reader is busy for a while, as refusals are."""
    turn, seen = Turn(), []

    async def read() -> None:
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(3)]
        for end, _ in pairs:
            loop.add_reader(end, reader, loop, end)
        for _ in range(2):
            for _, other in pairs:
                other.send(b"x")
            await asyncio.sleep(5 * WORK)
        for end, other in pairs:
            loop.remove_reader(end)
            end.close()
            other.close()

    def reader(loop: asyncio.AbstractEventLoop, end: socket.socket) -> None:
        end.recv(1)
        seen.append((turn.since(loop), monotonic()))
        sleep(WORK)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(read())
    first, second = seen[:3], seen[3:]
    for read_together in (first, second):
        [since] = {since for since, _ in read_together}
        assert all(now - since >= i * WORK for i, (_, now) in enumerate(read_together))
    assert second[0][0] > first[-1][1]
