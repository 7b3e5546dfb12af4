"""The client: replies that are late or lost, and servers that fail, restart or refuse."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from localmoments.errors import SettingsError, StoreError
from service.store.chains import ChainStore, Lease, Snapshot

Run = Callable[..., None]
PASSWORD = "hush%2Fhush"
LIFETIMES = {"chain_seconds": 60, "tombstone_seconds": 60, "lease_seconds": 5}


def at(step: int) -> Snapshot:
    return Snapshot(step, f"at {step}".encode())


async def create(store: ChainStore, chain: str) -> Lease:
    lease = await store.create(chain, "me", b"plan", b"at 0")
    assert lease
    return lease


async def run_every_script(store: ChainStore) -> None:
    """Open the connection and make the server load every script."""
    lease = await create(store, "warm")
    await store.commit(lease, 0, at(1))
    await store.renew(lease)
    await store.release(lease)
    await store.acquire("warm", "me")
    await store.delete("warm", "me")


async def cancel(work: Awaitable[Any], after: float, times: int = 1) -> None:
    """Cancel work and check that it raises CancelledError."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(after)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_operation_succeeds_once_although_its_reply_is_lost(proxy: Any, chain: str) -> None:
    async def lossy() -> None:
        async with proxy() as link:
            store = ChainStore(link.url, **LIFETIMES, timeout=5)

            async def lose_first_reply(work: Awaitable[Any]) -> Any:
                link.lose = 1
                reply = await work
                assert link.lose == 0
                return reply

            await run_every_script(store)
            lease = await lose_first_reply(create(store, chain))
            await lose_first_reply(store.commit(lease, 0, at(1), base=at(0)))
            await lose_first_reply(store.renew(lease))
            await lose_first_reply(store.commit(lease, 1, at(2), release=True))
            record, lease = await lose_first_reply(store.acquire(chain, "me"))
            assert record.head == at(2)
            await lose_first_reply(store.commit(lease, 2, at(2), release=True))
            await lose_first_reply(store.delete(chain, "me"))
            await store.close()

    asyncio.run(lossy())


def test_a_cancelled_commit_completes_and_leaves_the_connection_usable(
    proxy: Any, embedded_url: str, chain: str
) -> None:
    async def late() -> None:
        async with proxy() as link:
            store = ChainStore(link.url, **LIFETIMES, timeout=5)
            direct = ChainStore(embedded_url, **LIFETIMES, timeout=5)
            await run_every_script(store)
            lease = await create(store, chain)
            others = [await create(store, f"{chain}{i}") for i in range(5)]
            link.delay = 0.02
            for step in range(10):  # cancelled before, during and after the script runs
                head = Snapshot(step + 1, bytes([step]) * 200_000)
                commit = store.commit(lease, step, head)
                await cancel(commit, after=0.004 * step, times=1 + step % 3)
                assert (await direct.read(chain, "me")).head == head
                reads = [store.read(other.chain, "me") for other in others]
                found = [record.id for record in await asyncio.gather(*reads)]
                assert found == [other.chain for other in others]
            assert link.opened < 20  # no connection was dropped
            await store.close()
            await direct.close()

    asyncio.run(late())


def test_a_lease_acquired_by_a_cancelled_caller_is_released(proxy: Any, chain: str) -> None:
    async def late() -> None:
        async with proxy() as link:
            store = ChainStore(link.url, **LIFETIMES, timeout=5)
            await run_every_script(store)
            link.delay = 0.02
            await cancel(store.create(chain, "me", b"", b""), after=0.01)
            assert (await store.read(chain, "me")).busy_seconds == 0
            for times in (1, 3):
                await cancel(store.acquire(chain, "me"), after=0.01, times=times)
                assert (await store.read(chain, "me")).busy_seconds == 0
            await store.close()

    asyncio.run(late())


def test_a_dead_connection_is_replaced_in_time(proxy: Any, chain: str) -> None:
    async def deaf() -> None:
        async with proxy() as link:
            store = ChainStore(link.url, **LIFETIMES, timeout=2)
            await run_every_script(store)
            link.deaf = set(range(1, link.opened + 1))
            lease = await create(store, chain)
            await store.commit(lease, 0, at(1))
            await store.close()

    asyncio.run(deaf())


def test_a_server_that_never_replies_is_an_error_in_time(proxy: Any, chain: str) -> None:
    async def silent() -> None:
        async with proxy() as link:
            store = ChainStore(link.url, **LIFETIMES, timeout=0.6)
            lease = await create(store, chain)
            link.deaf = set(range(1000))
            started = time.monotonic()
            commits = [store.commit(lease, 0, at(1)) for _ in range(200)]
            ends = await asyncio.gather(*commits, return_exceptions=True)
            assert 0.5 < time.monotonic() - started < 3
            assert {str(end) for end in ends} == {"The chain store does not respond in time."}
            assert all(isinstance(end, StoreError) for end in ends)
            link.deaf = set()
            await store.commit(lease, 0, at(1))
            await store.close()

    asyncio.run(silent())


def test_a_store_that_is_down_is_an_error_and_works_when_it_comes_up(
    serve: Any, chain: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"redis://:{PASSWORD}@127.0.0.1:{{port}}"
    server = serve("--requirepass", "hush/hush", url=url, start=False)

    async def down_and_up() -> None:
        store = ChainStore(server.url, **LIFETIMES, timeout=5)
        started = time.monotonic()
        uses = [store.ping(), store.read(chain, "me"), store.create(chain, "me", b"", b"")]
        ends = await asyncio.gather(*uses, return_exceptions=True)
        assert time.monotonic() - started < 4
        assert {type(end) for end in ends} == {StoreError}
        await asyncio.to_thread(server.start)
        await store.ping()
        assert await store.create(chain, "me", b"", b"")
        await store.close()
        assert "hush" not in repr(ends) + caplog.text

    asyncio.run(down_and_up())
    assert caplog.text.count("the chain store fails") == 1


def test_a_restarted_server_works_again_with_its_chains(serve: Any, chain: str) -> None:
    server = serve("--appendonly", "yes", "--appendfsync", "always")

    async def restarted() -> None:
        store = ChainStore(server.url, **LIFETIMES, timeout=5)
        lease = await create(store, chain)
        await asyncio.gather(*(create(store, f"{chain}{i}") for i in range(100)))
        for step in range(3):
            server.end(kill=True)
            with pytest.raises(StoreError):
                await store.commit(lease, step, at(step + 1))
            await asyncio.to_thread(server.start)
            commits = [store.commit(lease, step, at(step + 1)) for _ in range(100)]
            await asyncio.gather(*commits)
        await store.close()

    asyncio.run(restarted())


def test_a_restarted_cluster_works_again(cluster: list[Any], new_id: Any) -> None:
    async def restarted() -> None:
        store = ChainStore(cluster[1].url, **LIFETIMES, timeout=5)
        leaving = ChainStore(cluster[1].url, **LIFETIMES, timeout=5)
        leases = [await create(store, new_id()) for _ in range(20)]
        cluster[2].end()
        ends = await asyncio.gather(*map(leaving.renew, leases), return_exceptions=True)
        lost = [lease for lease, end in zip(leases, ends, strict=True) if end]
        with pytest.raises(StoreError):
            await leaving.renew(lost[0])
        await leaving.close()  # must close the connections to the other two as well
        for node in cluster[:2]:
            node.end()
        ends = await asyncio.gather(*map(store.renew, leases), return_exceptions=True)
        assert {type(end) for end in ends} == {StoreError}
        for node in cluster:
            await asyncio.to_thread(node.start)
        await wait_until_up(store, leases)
        await asyncio.gather(*(create(store, new_id()) for _ in range(100)))
        await store.close()

    asyncio.run(restarted())


def test_a_cluster_may_use_tls(tls_cluster: list[Any], run_on: Run, new_id: Any) -> None:
    async def check(store: ChainStore) -> None:
        leases = await asyncio.gather(*(create(store, new_id()) for _ in range(200)))
        await asyncio.gather(*(store.commit(lease, 0, at(1)) for lease in leases))

    run_on(tls_cluster[0].url, check)


async def wait_until_up(store: ChainStore, leases: list[Lease]) -> None:
    """Wait until the nodes, which have lost their data, form a cluster again."""
    for _ in range(100):
        ends = [store.release(lease) for lease in leases]
        if not any(await asyncio.gather(*ends, return_exceptions=True)):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the cluster does not come up")


def test_a_server_that_lost_the_scripts_gets_them_again(
    embedded_url: str, run_on: Run, chain: str
) -> None:
    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        with redis.Redis.from_url(embedded_url) as client:
            client.script_flush()
        await store.commit(lease, 0, at(1))
        assert (await store.read(chain, "me")).head == at(1)

    run_on(embedded_url, check)


def test_a_replica_is_an_error_until_it_is_promoted(serve: Any, run_on: Run, chain: str) -> None:
    server = serve()

    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        with server.client() as client:
            client.replicaof("127.0.0.1", 1)
            with pytest.raises(StoreError, match="read-only"):
                await store.commit(lease, 0, at(1))
            client.replicaof("NO", "ONE")
        await store.commit(lease, 0, at(1))

    run_on(server.url, check)


def test_a_full_server_is_an_error_but_chains_can_be_deleted(
    serve: Any, run_on: Run, chain: str
) -> None:
    server = serve()

    async def check(store: ChainStore) -> None:
        lease = await create(store, chain)
        with server.client() as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(StoreError, match="out of memory"):
                await store.commit(lease, 0, at(1), base=at(0))
            assert (await store.read(chain, "me")).head == at(0)
            await store.delete(chain, "me")
            client.config_set("maxmemory", "0")

    run_on(server.url, check)


def test_a_server_that_denies_info_is_taken_for_a_single_one(
    serve: Any, run_on: Run, chain: str
) -> None:
    server = serve()
    with server.client() as client:
        client.acl_setuser(
            "few", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"]
        )

    async def check(store: ChainStore) -> None:
        await create(store, chain)

    run_on(server.url.replace("//", "//few:any@"), check)


def test_the_error_for_a_wrong_password_does_not_contain_it(password_url: str, run_on: Run) -> None:
    async def check(store: ChainStore) -> None:
        with pytest.raises(StoreError, match="user or password") as caught:
            await store.ping()
        assert "hush" not in str(caught.value)

    run_on(password_url.replace("p%40ss", PASSWORD), check)


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@host",
        f":{PASSWORD}@host",
        f"redis://:{PASSWORD}@host:port",
        f"redis://:{PASSWORD}@host?colour=red",
        f"rediss://:{PASSWORD}@host?ssl_cert_reqs=perhaps",
    ],
)
def test_the_error_for_an_invalid_url_does_not_contain_the_password(url: str) -> None:
    with pytest.raises(SettingsError, match="REDIS_URL") as caught:
        ChainStore(url, **LIFETIMES, timeout=5)
    assert "hush" not in str(caught.value)
