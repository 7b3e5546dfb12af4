"""1,000 streams at once: all go on, none fails, memory stays bounded."""

import asyncio
import resource
from collections.abc import Iterator

from interleave import Figure

from serving import load
from serving.load import Stream
from serving.roster import Setup
from serving.sampling import ENDLESS, NDJSON, ask
from serving.servers import Running

STREAMS, THIN = 1000, 5


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """A server of its own for each round, so that memory begins anew."""
    _raise_open_files()
    found = [_once(setup, seconds) for _ in range(rounds)]
    for name, unit, at_least, at_most in (
        ("streams that went on to the end", "", STREAMS, None),
        ("errors", "", None, 0),
        ("fewest steps of a stream", "steps", 1, None),
        ("most steps of a stream", "steps", None, None),
        ("memory before", "MB", None, None),
        ("peak memory", "MB", None, None),
        ("memory a stream", "kB", None, None),
        ("steps/s of all", "steps/s", None, None),
    ):
        values = tuple(each[name] for each in found)
        yield Figure(f"{STREAMS} streams: {name}", unit, values, at_least, at_most)


def _once(setup: Setup, seconds: float) -> dict[str, float]:
    with setup.service() as server:
        before = server.rss()
        asked = [ask(NDJSON, walkers=1, steps=ENDLESS, thin=THIN, seed=i) for i in range(STREAMS)]
        (peak, halfway, length), found = load.run(
            load.streams(server.address, asked, lambda s: _watch(server, s, 2 * seconds))
        )
    steps = [THIN * max(0, stream.lines - 1) for stream in found]
    later = [stream.lines - lines for stream, lines in zip(found, halfway, strict=True)]
    bad = sum(s.ended is not None or b'"error"' in s.last for s in found)
    return {
        "streams that went on to the end": float(sum(lines > 0 for lines in later)),
        "errors": float(bad), "fewest steps of a stream": min(steps),
        "most steps of a stream": max(steps), "memory before": before / 1e6,
        "peak memory": peak / 1e6, "memory a stream": (peak - before) / STREAMS / 1e3,
        "steps/s of all": THIN * sum(later) / length,
    }  # fmt: skip


async def _watch(
    server: Running, found: list[Stream], seconds: float
) -> tuple[int, list[int], float]:
    """The peak of memory, the lines at half-time, and the seconds after that."""
    peak, looks, lines = 0, 10, [0] * len(found)
    for i in range(2 * looks):
        if i == looks:
            lines = [stream.lines for stream in found]
        await asyncio.sleep(seconds / looks)
        peak = max(peak, await asyncio.to_thread(server.rss))
    return peak, lines, seconds


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * STREAMS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
