"""Requests to POST /sample, and counting what their streams bring."""

import asyncio
from time import perf_counter
from typing import Any

import orjson

from serving import load
from serving.load import Stream
from serving.servers import Running
from serving.wire import request

NDJSON, NPY, JSON = "application/x-ndjson", "application/x-npy", "application/json"
ENDLESS = 1_000_000  # steps: more than any window here sees; left before its end


def ask(accept: str, **body: Any) -> bytes:
    return request(
        "POST", "/sample", orjson.dumps(body), content_type="application/json", accept=accept
    )


def rate(stream: Stream, began: float, thin: int) -> float:
    """Steps a second between its first and last line of the window. Chains walk in step with each
    other, so that counting lines in a fixed time would be off by up to one of all chains."""
    there = [(when, lines) for when, lines in stream.arrivals if when >= began]
    if len(there) < 2:
        return 0.0
    (t0, n0), (t1, n1) = there[0], there[-1]
    return (n1 - n0) * thin / (t1 - t0)


def streamed_steps(
    server: Running, chains: int, thin: int, seconds: float, warm_up: float
) -> tuple[float, list[Stream]]:
    """Row-steps a second of so many single-walker chains, all streamed at once."""

    async def window(found: list[Stream]) -> float:
        await asyncio.sleep(warm_up)
        began = perf_counter()
        await asyncio.sleep(seconds)
        return sum(rate(stream, began, thin) for stream in found)

    asked = [ask(NDJSON, walkers=1, steps=ENDLESS, thin=thin, seed=i) for i in range(chains)]
    return load.run(load.streams(server.address, asked, window))
