"""The chain store: leases, fencing, atomic commits, expiry and owners, on every kind of server."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

import pytest

from localmoments.errors import (
    BusyChainError,
    ExpiredChainError,
    StaleChainError,
    UnknownChainError,
)
from service.store.chains import ChainStore, Lease, Snapshot

Run = Callable[..., None]
Another = Callable[..., AbstractAsyncContextManager[ChainStore]]
EVERY_BYTE = bytes(range(256)) * 3


async def create(store: ChainStore, chain: str, owner: str = "me") -> Lease:
    lease = await store.create(chain, owner, b"plan", b"at 0")
    assert lease
    return lease


def at(step: int) -> Snapshot:
    return Snapshot(step, f"at {step}".encode())


def test_a_chain_is_read_as_it_was_created(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await store.create(chain, 'Zoë "\\', EVERY_BYTE, EVERY_BYTE[::-1], step=7)
        assert lease
        record = await store.read(chain, 'Zoë "\\')
        assert (record.id, record.owner, record.plan) == (chain, 'Zoë "\\', EVERY_BYTE)
        assert record.head == record.base == Snapshot(7, EVERY_BYTE[::-1])
        assert abs(record.created - time.time()) < 5
        assert record.expires - record.created == pytest.approx(60, abs=0.1)
        assert 0 < record.busy_seconds <= 5
        await store.release(lease)
        assert (await store.read(chain, None)).busy_seconds == 0

    run(check)


def test_an_id_can_be_used_only_once(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        assert await store.create(chain, "me", b"other", b"other") is None
        await store.release(lease)
        assert await store.create(chain, "me", b"other", b"other") is None
        assert (await store.read(chain, "me")).plan == b"plan"

    run(check)


def test_one_of_a_hundred_writers_gets_the_lease(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        await store.release(await create(store, chain))
        attempts = [store.acquire(chain, "me") for _ in range(100)]
        ends = await asyncio.gather(*attempts, return_exceptions=True)
        lost = [end for end in ends if isinstance(end, BusyChainError)]
        assert len(lost) == 99
        assert all(0 < (error.retry_after or 0) <= 5 for error in lost)
        [(record, lease)] = [end for end in ends if isinstance(end, tuple)]
        await store.commit(lease, record.head.step, at(1))

    run(check)


def test_one_of_a_hundred_creators_gets_the_id(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        attempts = [store.create(chain, "me", b"", b"") for _ in range(100)]
        assert sum(lease is not None for lease in await asyncio.gather(*attempts)) == 1

    run(check)


def test_an_expired_lease_can_be_taken_over_and_its_old_holder_cannot_write(
    run: Run, another: Another, chain: str
) -> None:
    async def check(store: ChainStore) -> None:
        async with another(lease_seconds=0.05) as brief:
            old = await create(brief, chain)
            await asyncio.sleep(0.1)
        _, new = await store.acquire(chain, "me")
        for late in (store.commit(old, 0, at(1)), store.renew(old)):
            with pytest.raises(StaleChainError) as caught:
                await late
            assert caught.value.facts == {"step": 0}
        await store.release(old)
        assert (await store.read(chain, "me")).busy_seconds > 0
        await store.commit(new, 0, at(2))
        assert (await store.read(chain, "me")).head == at(2)

    run(check)


def test_an_expired_lease_can_still_write_if_nobody_took_over(
    run: Run, another: Another, chain: str
) -> None:
    async def check(store: ChainStore) -> None:
        async with another(lease_seconds=0.05) as brief:
            lease = await create(brief, chain)
            for regain in (store.commit(lease, 0, at(1)), store.renew(lease)):
                await brief.renew(lease)
                await asyncio.sleep(0.1)
                assert (await store.read(chain, "me")).busy_seconds == 0
                await regain
                with pytest.raises(BusyChainError):
                    await store.acquire(chain, "me")

    run(check)


def test_a_commit_from_another_step_writes_nothing(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        await store.commit(lease, 0, at(5))
        with pytest.raises(StaleChainError) as caught:
            await store.commit(lease, 4, at(6), base=at(4))
        assert caught.value.facts == {"step": 5}
        record = await store.read(chain, "me")
        assert (record.head, record.base) == (at(5), at(0))

    run(check)


def test_a_commit_may_go_back_to_an_earlier_step(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        await store.commit(lease, 0, at(9), base=at(0))
        await store.commit(lease, 9, at(3), base=at(1))
        record = await store.read(chain, "me")
        assert (record.head, record.base) == (at(3), at(1))

    run(check)


def test_a_repeated_commit_changes_nothing(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        for _ in range(2):
            await store.commit(lease, 0, at(1), base=at(0))
        for _ in range(2):
            await store.commit(lease, 1, at(2), release=True)
        record, _ = await store.acquire(chain, "me")
        assert (record.head, record.base) == (at(2), at(0))

    run(check)


def test_a_released_lease_cannot_write_or_renew(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        await store.commit(lease, 0, at(1), release=True)
        for late in (store.commit(lease, 1, at(2)), store.renew(lease)):
            with pytest.raises(StaleChainError):
                await late
        assert (await store.read(chain, "me")).busy_seconds == 0

    run(check)


def test_every_use_except_a_read_extends_a_chains_life(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        expires = (await store.read(chain, "me")).expires

        async def extends_life(use: Any) -> bool:
            nonlocal expires
            await asyncio.sleep(0.01)
            await use
            before, expires = expires, (await store.read(chain, "me")).expires
            return expires > before + 0.005

        assert not await extends_life(store.read(chain, "me"))
        assert await extends_life(store.commit(lease, 0, at(1)))
        assert await extends_life(store.renew(lease))
        assert await extends_life(store.commit(lease, 1, at(2), release=True))
        assert await extends_life(store.acquire(chain, "me"))

    run(check)


def test_an_unused_chain_expires_and_its_owner_learns_when(
    run: Run, another: Another, chain: str
) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        async with another(chain_seconds=0.05) as brief:
            earliest = time.time() + 0.05
            await brief.renew(lease)
            latest = time.time() + 0.05
            await asyncio.sleep(0.1)
        for owner in ("me", None):
            with pytest.raises(ExpiredChainError, match="expired at") as caught:
                await store.acquire(chain, owner)
            when = caught.value.facts["expired"]
            assert when in str(caught.value)
            moment = datetime.fromisoformat(when)
            assert moment.utcoffset() == timedelta(0)
            assert int(earliest - 0.002) <= moment.timestamp() <= latest
        with pytest.raises(UnknownChainError):
            await store.read(chain, "you")

    run(check)


def test_an_expired_chain_is_unknown_after_its_tombstone_expires(run: Run, chain: str) -> None:
    async def check(brief: ChainStore) -> None:
        await create(brief, chain)
        await asyncio.sleep(0.2)
        with pytest.raises(UnknownChainError):
            await brief.read(chain, "me")

    run(check, chain_seconds=0.05, tombstone_seconds=0.05)


def test_without_tombstones_a_deleted_chain_is_unknown(
    run: Run, another: Another, chain: str
) -> None:
    async def check(store: ChainStore) -> None:
        await create(store, chain)
        await store.delete(chain, "me")
        with pytest.raises(UnknownChainError):
            await store.read(chain, "me")
        async with another() as with_tombstones:
            await store.renew(await create(with_tombstones, chain))
            await store.delete(chain, "me")
        with pytest.raises(UnknownChainError):
            await store.read(chain, "me")

    run(check, tombstone_seconds=0)


def test_another_owners_chain_looks_like_an_unknown_one(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        sentences = set()
        for _ in range(2):
            for use in (store.read, store.acquire, store.delete):
                for owner in ("you", ""):
                    with pytest.raises(UnknownChainError) as caught:
                        await use(chain, owner)
                    sentences.add((str(caught.value), str(caught.value.facts)))
            await store.delete(chain, "me")  # a deleted chain looks the same
            with pytest.raises(ExpiredChainError):
                await store.commit(lease, 0, at(1))
            await create(store, chain)
        with pytest.raises(UnknownChainError) as caught:
            await store.read("never", "you")
        assert sentences == {(str(caught.value).replace("never", chain), "{}")}

    run(check)


def test_a_chain_can_be_deleted_under_its_writer(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        await store.commit(lease, 0, at(1))
        await store.delete(chain, None)
        after = (
            store.commit(lease, 1, at(2)),
            store.renew(lease),
            store.read(chain, "me"),
            store.acquire(chain, "me"),
            store.delete(chain, "me"),
        )
        for use in after:
            with pytest.raises(ExpiredChainError, match="was deleted at") as caught:
                await use
            ended = datetime.fromisoformat(caught.value.facts["expired"])
            assert abs(ended.timestamp() - time.time()) < 5
        await store.release(lease)

    run(check)


def test_an_old_lease_cannot_write_to_a_new_chain_of_the_same_id(run: Run, chain: str) -> None:
    async def check(store: ChainStore) -> None:
        old = await create(store, chain)
        await store.delete(chain, "me")
        await create(store, chain, "you")
        with pytest.raises(StaleChainError):
            await store.commit(old, 0, at(1))
        assert (await store.read(chain, "you")).head == at(0)

    run(check)


def test_a_thousand_chains_commit_at_once(run: Run, new_id: Callable[[], str]) -> None:
    async def check(store: ChainStore) -> None:
        leases = await asyncio.gather(*(create(store, new_id()) for _ in range(1000)))
        state = Snapshot(1, bytes(5000))
        await asyncio.gather(*(store.commit(lease, 0, state) for lease in leases))
        ends = await asyncio.gather(*(store.read(lease.chain, "me") for lease in leases))
        assert [(end.id, end.head) for end in ends] == [(lease.chain, state) for lease in leases]

    run(check, timeout=20)
