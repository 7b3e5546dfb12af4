"""The Redis client: Redis or Valkey, one server or a cluster, over TCP, TLS or a Unix socket.

It connects at the first use, so the service starts even if the store is down, and it reconnects
when the server comes back. A command takes at most `timeout` seconds with all retries.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from redis import exceptions as redis_errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import (
    ConnectionPool,
    RedisSSLContext,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from localmoments.errors import SettingsError, StoreError
from service.store.scripts import Script

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECTIONS = 64  # commands at the same time; others wait
RETRY_DELAYS = (0.02, 0.1, 0.3)  # seconds before each retry
LOG_SECONDS = 10  # least time between two log lines about a failing store
HEALTH_SECONDS = 15  # ping a connection before use if it was idle for this long

TRANSIENT = (  # worth a retry; a server that loads its data raises a ConnectionError, too
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ReadOnlyError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
    redis_errors.RedisClusterException,
    OSError,
)
SENTENCES: dict[type[Exception], str] = {  # details may name hosts, so only the log has them
    redis_errors.AuthenticationError: "The chain store rejects the configured user or password.",
    redis_errors.NoPermissionError: "The chain store denies the configured user a command.",
    redis_errors.BusyLoadingError: "The chain store is still loading its data.",
    redis_errors.ReadOnlyError: "The chain store is read-only at the moment.",
    redis_errors.OutOfMemoryError: "The chain store is out of memory.",
    redis_errors.TimeoutError: "The chain store does not respond in time.",
    TimeoutError: "The chain store does not respond in time.",
    redis_errors.ConnectionError: "The chain store cannot be reached.",
    redis_errors.RedisClusterException: "The chain store's cluster cannot be reached.",
    OSError: "The chain store cannot be reached.",
    Exception: "The chain store responds with an error.",
}


async def run_to_completion(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[None]] | None = None
) -> T:
    """Await `work` and return its result, and never abandon it half-way.

    If the caller is cancelled, it still waits until the work is done. So it is known what happened,
    and no connection is left with a reply that belongs to another command.

    Args:
        undo: called with the result if the caller was cancelled.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _wait_despite_cancellation(task)
        if undo and not task.cancelled() and not task.exception():
            undoing = asyncio.create_task(_suppress_store_errors(undo(task.result())))
            await _wait_despite_cancellation(undoing)
        raise


async def _wait_despite_cancellation(task: asyncio.Task[Any]) -> None:
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # marks it as retrieved, so that asyncio does not log it


async def _suppress_store_errors(work: Awaitable[None]) -> None:
    with contextlib.suppress(StoreError):
        await work


class Client:
    """Run scripts on a server. Raises only StoreError.

    Args:
        url: redis://, rediss:// or unix://.
        timeout: seconds that a command may take, with all retries.

    Raises:
        SettingsError: the URL is not valid.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._options = _make_options(url, timeout)
        self._client: Any = None  # Redis or RedisCluster
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._next_log = 0.0

    async def run(self, script: Script, keys: list[str], args: list[bytes | str | int]) -> Any:
        """Run a script and return its reply."""

        async def send(client: Any) -> Any:
            try:
                return await _evaluate(client, script, len(keys), *keys, *args)
            except redis_errors.ResponseError as error:
                raise _unwrap(error) from error

        return await self._run_in_time(send)

    async def ping(self) -> None:
        """Send a command to check the connection."""
        # A command with a key goes to one node of a cluster; PING would go to all of them.
        await run_to_completion(self._run_in_time(lambda client: client.get("lm:ping")))

    async def close(self) -> None:
        client, self._client = self._client, None
        await _close(client)

    async def _run_in_time(self, send: Callable[[Any], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._timeout) as limit, self._slots:
                return await self._retry(send, limit)
        except (redis_errors.RedisError, redis_errors.RedisClusterException, OSError) as error:
            raise self._make_store_error(error) from error

    async def _retry(self, send: Callable[[Any], Awaitable[T]], limit: asyncio.Timeout) -> T:
        for delay in RETRY_DELAYS:
            try:
                return await send(await self._connect())
            except redis_errors.AuthenticationError:
                raise
            except TRANSIENT as error:
                if limit.expired():  # Python 3.11's wait_for, in redis-py, may swallow a cancel
                    raise
                await self._drop_connections(error)
            await asyncio.sleep(delay)
        return await send(await self._connect())

    async def _connect(self) -> Any:
        if self._client is None:
            async with self._connecting:
                self._client = self._client or await self._make_client()
        return self._client

    async def _make_client(self) -> Any:
        single = Redis.from_url(self._url, **self._options)
        _share_tls_context(single)
        try:
            if not await self._is_cluster(single):
                return single
        except BaseException:
            await _close(single)
            raise
        await _close(single)
        try:
            cluster = RedisCluster.from_url(self._url, **self._options)
        except TypeError as error:  # the URL has an option for single servers only
            raise redis_errors.RedisClusterException(str(error)) from None
        _share_tls_context(cluster)
        return await cluster.initialize()

    async def _is_cluster(self, client: Any) -> bool:
        if _is_unix(self._url):  # RedisCluster does not support sockets
            return False
        try:
            return bool((await client.info("cluster")).get("cluster_enabled"))
        except redis_errors.ResponseError:  # the user may not run INFO
            return False

    async def _drop_connections(self, error: Exception) -> None:
        """Drop connections that a failover has made useless, so that the retry opens new ones."""
        client = self._client
        if isinstance(client, RedisCluster):
            if isinstance(error, redis_errors.RedisClusterException):  # none of its nodes is left
                self._client = None
                await _close(client)
        elif client is not None and isinstance(error, redis_errors.ReadOnlyError):
            await client.connection_pool.disconnect(inuse_connections=False)

    def _make_store_error(self, error: Exception) -> StoreError:
        """Log the error, at most once per LOG_SECONDS, and put it into words."""
        now = time.monotonic()
        if now >= self._next_log:
            self._next_log = now + LOG_SECONDS
            log.warning("the chain store fails: %s: %s", type(error).__name__, error)
        kind = next(kind for kind in type(error).__mro__ if kind in SENTENCES)
        return StoreError(SENTENCES[kind])


async def _evaluate(client: Any, script: Script, *args: bytes | str | int) -> Any:
    """Run a script by its hash, or by its text if the server does not know it yet."""
    try:
        return await client.evalsha(script.sha, *args)
    except redis_errors.NoScriptError:
        return await client.eval(script.text, *args)


def _unwrap(error: redis_errors.ResponseError) -> redis_errors.ResponseError:
    """Find the real error: servers before version 7 hide it in "ERR Error running script"."""
    if "-READONLY " in str(error):
        return redis_errors.ReadOnlyError(str(error))
    if "-OOM " in str(error):
        return redis_errors.OutOfMemoryError(str(error))
    return error


def _make_options(url: str, timeout: float) -> dict[str, Any]:
    """Return options for redis-py, after checking the URL with them."""
    options: dict[str, Any] = {
        "protocol": 2,
        "max_connections": 2 * CONNECTIONS,  # out of reach: a full pool fails, a semaphore waits
        "socket_timeout": timeout / 2,  # leaves time for a retry
        "socket_connect_timeout": timeout / 2,
        "health_check_interval": HEALTH_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # `_retry` does it
    }
    try:
        if not _is_unix(url):
            options["socket_keepalive"] = True
        pool: Any = ConnectionPool.from_url(url, **options)
        pool.make_connection()  # does not connect, but checks the names of options
    except (TypeError, ValueError, redis_errors.RedisError):
        raise SettingsError(
            "REDIS_URL is not valid. It must look like redis://host:6379/0, "
            "rediss://user:password@host:6379/0 or unix:///path/to/socket."
        ) from None
    return options


def _is_unix(url: str) -> bool:
    return parse_url(url).get("connection_class") is UnixDomainSocketConnection


async def _close(client: Any) -> None:
    if isinstance(client, RedisCluster):  # its aclose() does nothing after an error
        await client.nodes_manager.aclose()
        await client.nodes_manager.aclose("startup_nodes")
    if client is not None:
        await client.aclose()


def _share_tls_context(client: Any) -> None:
    """Use one TLS context for all connections of a client; does nothing without TLS.

    redis-py reads all certificates of the machine for every connection. That takes 25 ms on the
    event loop, and more than a second for a burst of 64 connections. Call this before the first
    connection.
    """
    if isinstance(client, RedisCluster):
        nodes = client.nodes_manager
        makers, options = list(nodes.startup_nodes.values()), nodes.connection_kwargs
    else:
        makers, options = [client.connection_pool], client.connection_pool.connection_kwargs
    if makers[0].connection_class is not SSLConnection:
        return
    tls_options = {name: options[name] for name in options if name.startswith("ssl_")}
    connection_class = _make_connection_class(tls_options)
    for maker in makers:
        maker.connection_class = connection_class
    if isinstance(client, RedisCluster):
        options["connection_class"] = connection_class  # for nodes that are discovered later


def _make_connection_class(tls_options: dict[str, Any]) -> type[SSLConnection]:
    context: RedisSSLContext = SSLConnection(**tls_options).ssl_context

    class SharedContextConnection(SSLConnection):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.ssl_context = context

    return SharedContextConnection
