"""A call keeps its lease while it runs and gives it back at its end."""

import asyncio
from pathlib import Path

from service.caller import ANYONE
from service.chains.planning import ChainLimits
from service.chains.service import ChainService
from service.chains.spec import CallSpec, ChainSpec
from service.engine.batcher import Batcher
from service.engine.executor import Executor
from service.engine.repository import ModelRepository
from service.store.chains import ChainStore

LIMITS = ChainLimits(walkers=10, row_steps=1000, values=10_000)


def test_a_renewal_does_not_fail_a_call_that_has_just_released_its_lease(
    digits: Path, valkey_url: str
) -> None:
    """With a lease of 2 ms, renewals are often under way during the last commit."""

    async def walk() -> None:
        models = ModelRepository(digits, threads=1)
        models.refresh()
        executor = Executor(Batcher(256, 8192))
        store = ChainStore(
            valkey_url, chain_seconds=60, tombstone_seconds=60, lease_seconds=0.002, timeout=5
        )
        chains = ChainService(models, executor, store, LIMITS)
        async with await chains.open(ChainSpec(walkers=1), CallSpec(1), ANYONE) as call:
            await call.fetch_all()
        for step in range(1, 200):
            async with await chains.resume(call.chain, ChainSpec(), CallSpec(1), ANYONE) as call:
                await call.fetch_all()
            assert call.is_finished and call.step == step + 1
        await store.close()
        executor.close()

    asyncio.run(walk())
