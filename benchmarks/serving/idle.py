"""100,000 chains that nobody walks: what they cost those that walk, and how many bytes each has.

Two services with a store each, one of them full; they are measured in turns. Idle chains are
copies of a real chain's record, written straight through the store.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson
from interleave import Figure, interleaved, ratios
from redis.asyncio import Redis

from service.store.chains import ChainStore
from service.store.embedded import EmbeddedValkey
from serving import load
from serving.roster import Setup
from serving.sampling import JSON, ask, streamed_steps
from serving.servers import Running

CHAINS, WALKING, THIN = 100_000, 64, 10
AT_ONCE = 64


def figures(setup: Setup, rounds: int, seconds: float, count: int = CHAINS) -> Iterator[Figure]:
    with (
        _store() as empty,
        _store() as full,
        setup.service(redis_url=empty) as a,
        setup.service(redis_url=full) as b,
    ):
        each = load.run(_fill(b, full, count))
        alone, among = interleaved(
            lambda: streamed_steps(a, WALKING, THIN, seconds, seconds / 2)[0],
            lambda: streamed_steps(b, WALKING, THIN, seconds, seconds / 2)[0],
            rounds,
        )
    yield Figure("64 chains, empty store", "steps/s", tuple(alone))
    yield Figure(f"64 chains, {count:,} idle chains in the store", "steps/s", tuple(among))
    yield Figure("full store / empty store", "×", ratios(among, alone), at_least=0.95)
    yield Figure("memory of the store for an idle chain (1 walker)", "bytes", (each,))


@contextlib.contextmanager
def _store() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="lm-") as folder:
        valkey = EmbeddedValkey(Path(folder) / "s")
        try:
            yield valkey.start()
        finally:
            valkey.stop()


async def _fill(server: Running, url: str, count: int) -> float:
    """Bytes that the store's INFO memory has grown by, for each chain."""
    store = ChainStore(
        url, chain_seconds=86_400, tombstone_seconds=86_400, lease_seconds=5, timeout=30
    )
    redis = Redis.from_url(url)
    status, body = await load.fetch(server.address, ask(JSON, walkers=1, steps=10))
    assert status == 200, body[:300]
    record = await store.read(orjson.loads(body)["chain"], None)
    before = (await redis.info("memory"))["used_memory"]

    async def some(start: int) -> None:
        for i in range(start, count, AT_ONCE):
            plan, state = record.plan, record.head.state
            lease = await store.create(f"idle-{i:012d}", record.owner, plan, state)
            assert lease is not None
            await store.release(lease)

    await asyncio.gather(*(some(i) for i in range(AT_ONCE)))
    after = (await redis.info("memory"))["used_memory"]
    await store.close()
    await redis.aclose()
    return float(after - before) / count
