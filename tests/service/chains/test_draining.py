"""A termination signal ends running calls, whatever code it interrupts."""

import asyncio
import gc
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from service.caller import ANYONE
from service.chains.spec import CallSpec, ChainSpec
from service.server import Server
from service.settings import Settings


async def wait_until(condition: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


@pytest.mark.timeout(60, func_only=True)  # a deadlock would last for ever
def test_a_signal_that_interrupts_the_holder_of_a_jobs_lock_does_not_deadlock(
    digits: Path, valkey_url: str
) -> None:
    settings = Settings(
        _env_file=None, models=digits, threads=1, reload_seconds=0, drain_seconds=0, grace_seconds=5
    )
    listener = socket.create_server(("127.0.0.1", 0))

    async def main() -> None:
        server = Server(settings, listener, valkey_url)
        serving = asyncio.create_task(server.serve([listener]))
        await wait_until(lambda: server.started)
        chains = server._chains
        spec, steps = ChainSpec(walkers=1, seed=1), CallSpec(10**6, thin=1, streamed=True)
        async with await chains.open(spec, steps, ANYONE) as call:
            assert await call.fetch_next()
            with call._job._lock:  # as in `fetch` or `stop` on this very thread
                signal.raise_signal(signal.SIGTERM)
                assert call.stop_reason is None  # the handler leaves the work to the event loop
            await wait_until(lambda: call.stop_reason == "draining")
            while await call.fetch_next():
                pass
            assert not call.is_finished and call.make_resume_request()["chain"] == call.chain
        assert (await chains.get(call.chain, ANYONE)).record.head.step == call.step
        await asyncio.wait_for(serving, 10)

    try:
        asyncio.run(main())
    finally:
        gc.unfreeze()  # the server freezes what it finds at its start
