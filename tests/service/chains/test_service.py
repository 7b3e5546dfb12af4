"""A call keeps its lease while it runs; repeated requests and forks are charged as they compute."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localmoments.errors import TooLargeError
from service.caller import ANYONE, Caller
from service.chains.planning import ChainLimits, Change
from service.chains.service import ChainService
from service.chains.spec import CallSpec, ChainSpec
from service.engine.batcher import Batcher
from service.engine.executor import Executor
from service.engine.repository import ModelRepository
from service.store.chains import ChainStore

LIMITS = ChainLimits(walkers=10, row_steps=1000, values=10_000)


@contextlib.asynccontextmanager
async def make_service(
    models_folder: Path, url: str, limits: ChainLimits = LIMITS, lease_seconds: float = 10
) -> AsyncIterator[ChainService]:
    models = ModelRepository(models_folder, threads=1)
    models.refresh()
    executor = Executor(Batcher(256, 8192))
    store = ChainStore(
        url, chain_seconds=60, tombstone_seconds=60, lease_seconds=lease_seconds, timeout=5
    )
    try:
        yield ChainService(models, executor, store, limits)
    finally:
        await store.close()
        executor.close()


def test_a_renewal_does_not_fail_a_call_that_has_just_released_its_lease(
    digits: Path, valkey_url: str
) -> None:
    """With a lease of 2 ms, renewals are often under way during the last commit."""

    async def walk() -> None:
        async with make_service(digits, valkey_url, lease_seconds=0.002) as chains:
            async with await chains.open(ChainSpec(walkers=1), CallSpec(1), ANYONE) as call:
                await call.fetch_all()
            for step in range(1, 200):
                resumed = await chains.resume(call.chain, ChainSpec(), CallSpec(1), ANYONE)
                async with resumed as call:
                    await call.fetch_all()
                assert call.is_finished and call.step == step + 1

    asyncio.run(walk())


def test_a_repeated_request_is_charged_once_per_response(digits: Path, valkey_url: str) -> None:
    charges: list[int] = []
    caller = Caller("charged", charge=charges.append)

    async def walk() -> None:
        async with make_service(digits, valkey_url) as chains:
            for i in range(1, 3):
                key = ("key", "digest")
                call = await chains.open(ChainSpec(walkers=2), CallSpec(5), caller, key)
                async with call:
                    await call.fetch_all()
                assert charges == [2 * 5] * i
            assert chains.created == 1

    asyncio.run(walk())


def test_a_fork_that_walks_is_charged_and_limited(digits: Path, valkey_url: str) -> None:
    charges: list[int] = []
    caller = Caller("charged", charge=charges.append)

    async def walk() -> None:
        async with make_service(digits, valkey_url) as chains:
            async with await chains.open(ChainSpec(walkers=2), CallSpec(9), caller) as call:
                await call.fetch_all()
            assert (await chains.fork(call.chain, Change(), caller)).record.head.step == 9
            assert charges == [18]  # a fork at the newest step computes nothing
            fork = await chains.fork(call.chain, Change(from_step=7), caller)
            assert fork.record.head.step == 7 and charges == [18, 14]
        few = ChainLimits(walkers=10, row_steps=13, values=10_000)
        async with make_service(digits, valkey_url, few) as chains:
            with pytest.raises(TooLargeError):
                await chains.fork(call.chain, Change(from_step=7), caller)
        assert charges == [18, 14] and chains.running == 0

    asyncio.run(walk())
