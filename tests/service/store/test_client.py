"""The way to the server: answers that come late, twice or never, and servers that go and return."""

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
LIVES = {"chain_seconds": 60, "tombstone_seconds": 60, "lease_seconds": 5}


def at(step: int) -> Snapshot:
    return Snapshot(step, f"at {step}".encode())


async def made(store: ChainStore, chain: str) -> Lease:
    lease = await store.create(chain, "me", b"plan", b"at 0")
    assert lease
    return lease


async def every_script_once(store: ChainStore) -> None:
    """So that servers know all scripts, and the connection is open."""
    lease = await made(store, "warm")
    await store.commit(lease, 0, at(1))
    await store.renew(lease)
    await store.release(lease)
    await store.acquire("warm", "me")
    await store.delete("warm", "me")


async def cancelled(work: Awaitable[Any], after: float, times: int = 1) -> None:
    """The work ends as cancelled, although it does end."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(after)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_lost_answer_is_no_lost_call(proxy: Any, chain: str) -> None:
    async def lossy() -> None:
        async with proxy() as way:
            store = ChainStore(way.url, **LIVES, timeout=5)

            async def despite_loss(work: Awaitable[Any]) -> Any:
                way.lose = 1
                answer = await work
                assert way.lose == 0
                return answer

            await every_script_once(store)
            lease = await despite_loss(made(store, chain))
            await despite_loss(store.commit(lease, 0, at(1), base=at(0)))
            await despite_loss(store.renew(lease))
            await despite_loss(store.commit(lease, 1, at(2), release=True))
            record, lease = await despite_loss(store.acquire(chain, "me"))
            assert record.head == at(2)
            await despite_loss(store.commit(lease, 2, at(2), release=True))
            await despite_loss(store.delete(chain, "me"))
            await store.close()

    asyncio.run(lossy())


def test_a_cancelled_commit_is_whole_and_leaves_the_connection_sound(
    proxy: Any, embedded_url: str, chain: str
) -> None:
    async def late() -> None:
        async with proxy() as way:
            store = ChainStore(way.url, **LIVES, timeout=5)
            direct = ChainStore(embedded_url, **LIVES, timeout=5)
            await every_script_once(store)
            lease = await made(store, chain)
            others = [await made(store, f"{chain}{i}") for i in range(5)]
            way.delay = 0.02
            for step in range(10):  # cancelled at once, on the way there, on the way back
                head = Snapshot(step + 1, bytes([step]) * 200_000)
                commit = store.commit(lease, step, head)
                await cancelled(commit, after=0.004 * step, times=1 + step % 3)
                assert (await direct.read(chain, "me")).head == head
                reads = [store.read(other.chain, "me") for other in others]
                found = [record.id for record in await asyncio.gather(*reads)]
                assert found == [other.chain for other in others]
            assert way.opened < 20  # none was broken off
            await store.close()
            await direct.close()

    asyncio.run(late())


def test_a_lease_won_by_a_cancelled_caller_is_given_back(proxy: Any, chain: str) -> None:
    async def late() -> None:
        async with proxy() as way:
            store = ChainStore(way.url, **LIVES, timeout=5)
            await every_script_once(store)
            way.delay = 0.02
            await cancelled(store.create(chain, "me", b"", b""), after=0.01)
            assert (await store.read(chain, "me")).busy_seconds == 0
            for times in (1, 3):
                await cancelled(store.acquire(chain, "me"), after=0.01, times=times)
                assert (await store.read(chain, "me")).busy_seconds == 0
            await store.close()

    asyncio.run(late())


def test_a_connection_gone_deaf_is_left_in_time(proxy: Any, chain: str) -> None:
    async def deaf() -> None:
        async with proxy() as way:
            store = ChainStore(way.url, **LIVES, timeout=2)
            await every_script_once(store)
            way.deaf = set(range(1, way.opened + 1))
            lease = await made(store, chain)
            await store.commit(lease, 0, at(1))
            await store.close()

    asyncio.run(deaf())


def test_a_server_that_never_answers_is_an_error_in_time(proxy: Any, chain: str) -> None:
    async def silent() -> None:
        async with proxy() as way:
            store = ChainStore(way.url, **LIVES, timeout=0.6)
            lease = await made(store, chain)
            way.deaf = set(range(1000))
            started = time.monotonic()
            commits = [store.commit(lease, 0, at(1)) for _ in range(200)]
            ends = await asyncio.gather(*commits, return_exceptions=True)
            assert 0.5 < time.monotonic() - started < 3
            assert {str(end) for end in ends} == {"The chain store does not respond in time."}
            assert all(isinstance(end, StoreError) for end in ends)
            way.deaf = set()
            await store.commit(lease, 0, at(1))
            await store.close()

    asyncio.run(silent())


def test_a_store_that_is_down_is_an_error_at_once_and_found_when_it_comes_up(
    serve: Any, chain: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"redis://:{PASSWORD}@127.0.0.1:{{port}}"
    server = serve("--requirepass", "hush/hush", url=url, start=False)

    async def down_and_up() -> None:
        store = ChainStore(server.url, **LIVES, timeout=5)
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


def test_a_server_that_restarts_is_found_again_with_its_chains(serve: Any, chain: str) -> None:
    server = serve("--appendonly", "yes", "--appendfsync", "always")

    async def restarted() -> None:
        store = ChainStore(server.url, **LIVES, timeout=5)
        lease = await made(store, chain)
        await asyncio.gather(*(made(store, f"{chain}{i}") for i in range(100)))
        for step in range(3):
            server.end(kill=True)
            with pytest.raises(StoreError):
                await store.commit(lease, step, at(step + 1))
            await asyncio.to_thread(server.start)
            commits = [store.commit(lease, step, at(step + 1)) for _ in range(100)]
            await asyncio.gather(*commits)
        await store.close()

    asyncio.run(restarted())


def test_a_cluster_that_restarts_is_found_again(cluster: list[Any], new_id: Any) -> None:
    async def restarted() -> None:
        store = ChainStore(cluster[1].url, **LIVES, timeout=5)
        leaving = ChainStore(cluster[1].url, **LIVES, timeout=5)
        leases = [await made(store, new_id()) for _ in range(20)]
        cluster[2].end()
        ends = await asyncio.gather(*map(leaving.renew, leases), return_exceptions=True)
        lost = [lease for lease, end in zip(leases, ends, strict=True) if end]
        with pytest.raises(StoreError):
            await leaving.renew(lost[0])
        await leaving.close()  # leaves no connection to the other two
        for node in cluster[:2]:
            node.end()
        ends = await asyncio.gather(*map(store.renew, leases), return_exceptions=True)
        assert {type(end) for end in ends} == {StoreError}
        for node in cluster:
            await asyncio.to_thread(node.start)
        await _until_it_answers(store, leases)
        await asyncio.gather(*(made(store, new_id()) for _ in range(100)))
        await store.close()

    asyncio.run(restarted())


def test_a_cluster_may_speak_tls(tls_cluster: list[Any], run_on: Run, new_id: Any) -> None:
    async def law(store: ChainStore) -> None:
        leases = await asyncio.gather(*(made(store, new_id()) for _ in range(200)))
        await asyncio.gather(*(store.commit(lease, 0, at(1)) for lease in leases))

    run_on(tls_cluster[0].url, law)


async def _until_it_answers(store: ChainStore, leases: list[Lease]) -> None:
    """The nodes keep nothing but must agree again."""
    for _ in range(100):
        ends = [store.release(lease) for lease in leases]
        if not any(await asyncio.gather(*ends, return_exceptions=True)):
            return
        await asyncio.sleep(0.05)
    pytest.fail("the cluster was not found again")


def test_a_server_that_forgot_the_scripts_is_told_again(
    embedded_url: str, run_on: Run, chain: str
) -> None:
    async def law(store: ChainStore) -> None:
        lease = await made(store, chain)
        with redis.Redis.from_url(embedded_url) as client:
            client.script_flush()
        await store.commit(lease, 0, at(1))
        assert (await store.read(chain, "me")).head == at(1)

    run_on(embedded_url, law)


def test_a_replica_is_an_error_until_it_is_promoted(serve: Any, run_on: Run, chain: str) -> None:
    server = serve()

    async def law(store: ChainStore) -> None:
        lease = await made(store, chain)
        with server.client() as client:
            client.replicaof("127.0.0.1", 1)
            with pytest.raises(StoreError, match="read-only"):
                await store.commit(lease, 0, at(1))
            client.replicaof("NO", "ONE")
        await store.commit(lease, 0, at(1))

    run_on(server.url, law)


def test_a_full_server_is_an_error_but_lets_chains_be_ended(
    serve: Any, run_on: Run, chain: str
) -> None:
    server = serve()

    async def law(store: ChainStore) -> None:
        lease = await made(store, chain)
        with server.client() as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(StoreError, match="out of memory"):
                await store.commit(lease, 0, at(1), base=at(0))
            assert (await store.read(chain, "me")).head == at(0)
            await store.delete(chain, "me")
            client.config_set("maxmemory", "0")

    run_on(server.url, law)


def test_a_server_without_info_is_taken_for_a_single_one(
    serve: Any, run_on: Run, chain: str
) -> None:
    server = serve()
    with server.client() as client:
        client.acl_setuser(
            "few", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"]
        )

    async def law(store: ChainStore) -> None:
        await made(store, chain)

    run_on(server.url.replace("//", "//few:any@"), law)


def test_a_wrong_password_is_said_without_it(password_url: str, run_on: Run) -> None:
    async def law(store: ChainStore) -> None:
        with pytest.raises(StoreError, match="user or password") as caught:
            await store.ping()
        assert "hush" not in str(caught.value)

    run_on(password_url.replace("p%40ss", PASSWORD), law)


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
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError, match="REDIS_URL") as caught:
        ChainStore(url, **LIVES, timeout=5)
    assert "hush" not in str(caught.value)
