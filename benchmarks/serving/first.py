"""How soon the first sample of a stream is there, on an idle server."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from time import perf_counter

from interleave import Figure

from serving import load
from serving.bare import OnnxLoop, steps_per_second
from serving.load import Stream
from serving.roster import Setup
from serving.sampling import NDJSON, ask
from serving.servers import Running

TRIES, PAUSE = 30, 0.05
ALLOWANCE_MS = 5.0


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """For one walker and for 64; each round is the median of TRIES requests."""
    with setup.service() as server:
        for walkers in (1, 64):
            loop = OnnxLoop(setup.artefact, setup.threads, walkers)
            waits, steps = [], []
            for _ in range(rounds):
                steps.append(1e3 * walkers / steps_per_second(loop, seconds / 2))
                waits.append(statistics.median(first_ms(server, walkers) for _ in range(TRIES)))
            yield from _figures(walkers, waits, steps)


def _figures(walkers: int, waits: list[float], steps: list[float]) -> Iterator[Figure]:
    yield Figure(f"first sample, {walkers} walkers", "ms", tuple(waits))
    yield Figure(f"bare step, batch {walkers}", "ms", tuple(steps))
    beyond = tuple((w - ALLOWANCE_MS) / s for w, s in zip(waits, steps, strict=True))
    yield Figure(f"first sample less 5 ms, {walkers} walkers", "step times", beyond, at_most=2.0)


def first_ms(server: Running, walkers: int) -> float:
    time.sleep(PAUSE)
    data = ask(NDJSON, walkers=walkers, steps=5, thin=1)

    async def until(found: list[Stream]) -> float:
        began = perf_counter()
        while found[0].ended is None:
            await asyncio.sleep(0.002)
        return ((found[0].first or float("nan")) - began) * 1e3

    return load.run(load.streams(server.address, [data], until))[0]
