"""1,000 streams at once, and 100,000 idle chains in the store."""

import asyncio
import contextlib
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
from measure import Figure, alternate, divide
from redis.asyncio import Redis

from service.store.chains import ChainStore
from service.store.embedded import EmbeddedValkey
from serving import load
from serving.chains import JSON, MANY_STEPS, NDJSON, build_sample_request, measure_stream_rate
from serving.load import Stream
from serving.roster import Setup
from serving.servers import Server

STREAMS, STREAM_THIN = 1000, 5
IDLE, ACTIVE, THIN = 100_000, 64, 10
WRITERS = 64  # that fill the store concurrently


def measure_streams(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """1,000 streams at once: all make progress, none fails, memory stays bounded.

    Each round has a new server, so that memory is measured from the start.
    """
    _raise_file_limit()
    results = [_measure_streams_once(setup, seconds) for _ in range(rounds)]
    for name, unit, at_least, at_most in (
        ("streams that made progress to the end", "", STREAMS, None),
        ("errors", "", None, 0),
        ("fewest steps of a stream", "steps", 1, None),
        ("most steps of a stream", "steps", None, None),
        ("memory before", "MB", None, None),
        ("peak memory", "MB", None, None),
        ("memory per stream", "kB", None, None),
        ("steps/s of all streams", "steps/s", None, None),
    ):
        values = tuple(each[name] for each in results)
        yield Figure(f"{STREAMS} streams: {name}", unit, values, at_least, at_most)


def _measure_streams_once(setup: Setup, seconds: float) -> dict[str, float]:
    with setup.start() as server:
        before = server.measure_memory()
        requests = [
            build_sample_request(NDJSON, walkers=1, steps=MANY_STEPS, thin=STREAM_THIN, seed=i)
            for i in range(STREAMS)
        ]
        (peak, halfway, length), streams = load.run(
            load.read_streams(server.address, requests, lambda s: _watch(server, s, 2 * seconds))
        )
    steps = [STREAM_THIN * max(0, stream.lines - 1) for stream in streams]
    later = [stream.lines - lines for stream, lines in zip(streams, halfway, strict=True)]
    failed = sum(s.ended is not None or b'"error"' in s.tail for s in streams)
    return {
        "streams that made progress to the end": float(sum(lines > 0 for lines in later)),
        "errors": float(failed), "fewest steps of a stream": min(steps),
        "most steps of a stream": max(steps), "memory before": before / 1e6,
        "peak memory": peak / 1e6, "memory per stream": (peak - before) / STREAMS / 1e3,
        "steps/s of all streams": STREAM_THIN * sum(later) / length,
    }  # fmt: skip


async def _watch(
    server: Server, streams: list[Stream], seconds: float
) -> tuple[int, list[int], float]:
    """Return the peak memory, the lines of each stream at half-time, and the seconds after it."""
    peak, looks, lines = 0, 10, [0] * len(streams)
    for i in range(2 * looks):
        if i == looks:
            lines = [stream.lines for stream in streams]
        await asyncio.sleep(seconds / looks)
        peak = max(peak, await asyncio.to_thread(server.measure_memory))
    return peak, lines, seconds


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 4 * STREAMS
    if soft != resource.RLIM_INFINITY and soft < limit:
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def measure_idle_chains(
    setup: Setup, rounds: int, seconds: float, count: int = IDLE
) -> Iterator[Figure]:
    """64 active chains on an empty store and on one with 100,000 idle chains, in turn."""
    with (
        _start_store() as empty,
        _start_store() as full,
        setup.start(redis_url=empty) as empty_server,
        setup.start(redis_url=full) as full_server,
    ):
        size = load.run(_fill_store(full_server, full, count))
        with_empty, with_full = alternate(
            lambda: measure_stream_rate(empty_server, ACTIVE, THIN, seconds, seconds / 2),
            lambda: measure_stream_rate(full_server, ACTIVE, THIN, seconds, seconds / 2),
            rounds,
        )
    yield Figure(f"{ACTIVE} chains, empty store", "steps/s", tuple(with_empty))
    yield Figure(f"{ACTIVE} chains, {count:,} idle chains", "steps/s", tuple(with_full))
    yield Figure("full store / empty store", "×", divide(with_full, with_empty), at_least=0.95)
    yield Figure("memory of the store per idle chain of 1 walker", "bytes", (size,))


@contextlib.contextmanager
def _start_store() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="lm-") as folder:
        valkey = EmbeddedValkey(Path(folder) / "s")
        try:
            yield valkey.start()
        finally:
            valkey.stop()


async def _fill_store(server: Server, url: str, count: int) -> float:
    """Write copies of a chain to the store; return the bytes of memory for each."""
    store = ChainStore(
        url, chain_seconds=86_400, tombstone_seconds=86_400, lease_seconds=5, timeout=30
    )
    redis = Redis.from_url(url)
    request = build_sample_request(JSON, walkers=1, steps=10)
    status, body = await load.fetch(server.address, request)
    assert status == 200, body[:300]
    record = await store.read(orjson.loads(body)["chain"], None)
    before = (await redis.info("memory"))["used_memory"]

    async def write(start: int) -> None:
        for i in range(start, count, WRITERS):
            plan, state = record.plan, record.head.state
            lease = await store.create(f"idle-{i:012d}", record.owner, plan, state)
            assert lease is not None
            await store.release(lease)

    await asyncio.gather(*(write(i) for i in range(WRITERS)))
    after = (await redis.info("memory"))["used_memory"]
    await store.close()
    await redis.aclose()
    return float(after - before) / count
