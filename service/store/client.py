"""One way to a server, whatever it is: a Redis, a Valkey, a cluster of them; TCP, TLS, a socket.

Built at the first use, so a store that is down does not keep the service from starting, and
mended by itself when the server comes back. A command takes `timeout` seconds at most, all tries
together; then it has failed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis import exceptions as redis_errors
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import ConnectionPool, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from localmoments.errors import SettingsError, StoreError
from service.store.run_to_completion import finished
from service.store.scripts import Script
from service.store.tls import share_context

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECTIONS = 64  # more commands at a time than this wait for each other
PAUSES = (0.02, 0.1, 0.3)  # seconds before a command is sent again
QUIET_SECONDS = 10  # between two lines in the log that the store fails
HEALTH_SECONDS = 15  # a connection that was idle for so long is asked first whether it lives

PASSING = (  # may be over in a moment; a server that loads its data is a ConnectionError too
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ReadOnlyError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
    redis_errors.RedisClusterException,
    OSError,
)
SENTENCES: dict[type[Exception], str] = {  # the log has the details, which may name hosts
    redis_errors.AuthenticationError: "The chain store does not accept our user or password.",
    redis_errors.NoPermissionError: "The chain store does not let our user do this.",
    redis_errors.BusyLoadingError: "The chain store is still loading its data.",
    redis_errors.ReadOnlyError: "The chain store can only be read at the moment.",
    redis_errors.OutOfMemoryError: "The chain store has no memory left.",
    redis_errors.TimeoutError: "The chain store does not answer in time.",
    TimeoutError: "The chain store does not answer in time.",
    redis_errors.ConnectionError: "The chain store cannot be reached.",
    redis_errors.RedisClusterException: "The chain store's cluster cannot be reached.",
    OSError: "The chain store cannot be reached.",
    Exception: "The chain store answers with an error.",
}


class Client:
    """Sends scripts; raises StoreError and nothing else."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._options = _options(url, timeout)
        self._client: Any = None
        self._building = asyncio.Lock()
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._next_word = 0.0

    async def run(self, script: Script, keys: list[str], args: list[bytes | str | int]) -> Any:
        """The script's answer."""

        async def send(client: Any) -> Any:
            try:
                return await _evaluated(client, script, len(keys), *keys, *args)
            except redis_errors.ResponseError as error:
                raise _unwrapped(error) from error

        return await self._guarded(send)

    async def ping(self) -> None:
        """A keyed command, so that of a cluster one node is asked and not every one."""
        await finished(self._guarded(lambda client: client.get("lm:ping")))

    async def close(self) -> None:
        client, self._client = self._client, None
        await _close(client)

    async def _guarded(self, send: Callable[[Any], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._timeout) as limit, self._slots:
                return await self._persistent(send, limit)
        except (redis_errors.RedisError, redis_errors.RedisClusterException, OSError) as error:
            raise self._told(error) from error

    async def _persistent(self, send: Callable[[Any], Awaitable[T]], limit: asyncio.Timeout) -> T:
        for pause in PAUSES:
            try:
                return await send(await self._connected())
            except redis_errors.AuthenticationError:
                raise
            except PASSING as error:
                if limit.expired():  # Python 3.11's wait_for, in redis-py, may swallow a cancel
                    raise
                await self._mend(error)
            await asyncio.sleep(pause)
        return await send(await self._connected())

    async def _connected(self) -> Any:
        if self._client is None:
            async with self._building:
                self._client = self._client or await self._build()
        return self._client

    async def _build(self) -> Any:
        single = Redis.from_url(self._url, **self._options)
        share_context(single)
        try:
            if not await self._is_cluster(single):
                return single
        except BaseException:
            await _close(single)
            raise
        await _close(single)
        try:
            cluster = RedisCluster.from_url(self._url, **self._options)
        except TypeError as error:  # an option that only a single server has
            raise redis_errors.RedisClusterException(str(error)) from None
        share_context(cluster)
        return await cluster.initialize()

    async def _is_cluster(self, client: Any) -> bool:
        if _is_unix(self._url):  # RedisCluster cannot use it, and one node needs no RedisCluster
            return False
        try:
            return bool((await client.info("cluster")).get("cluster_enabled"))
        except redis_errors.ResponseError:  # not allowed here
            return False

    async def _mend(self, error: Exception) -> None:
        """After a failover names lead elsewhere: leave connections that will not do any more."""
        client = self._client
        if isinstance(client, RedisCluster):
            if isinstance(error, redis_errors.RedisClusterException):  # no node left that it knows
                self._client = None
                await _close(client)
        elif client is not None and isinstance(error, redis_errors.ReadOnlyError):
            await client.connection_pool.disconnect(inuse_connections=False)

    def _told(self, error: Exception) -> StoreError:
        now = time.monotonic()
        if now >= self._next_word:
            self._next_word = now + QUIET_SECONDS
            log.warning("the chain store fails: %s: %s", type(error).__name__, error)
        kind = next(kind for kind in type(error).__mro__ if kind in SENTENCES)
        return StoreError(SENTENCES[kind])


async def _evaluated(client: Any, script: Script, *args: bytes | str | int) -> Any:
    try:
        return await client.evalsha(script.sha, *args)
    except redis_errors.NoScriptError:
        return await client.eval(script.text, *args)


def _unwrapped(error: redis_errors.ResponseError) -> redis_errors.ResponseError:
    """Before version 7 a server hides what failed inside "ERR Error running script"."""
    if "-READONLY " in str(error):
        return redis_errors.ReadOnlyError(str(error))
    if "-OOM " in str(error):
        return redis_errors.OutOfMemoryError(str(error))
    return error


def _options(url: str, timeout: float) -> dict[str, Any]:
    """What the URL does not say; refused if the URL itself is not understood."""
    options: dict[str, Any] = {
        "protocol": 2,
        "max_connections": 2 * CONNECTIONS,  # never reached; the semaphore waits, a pool fails
        "socket_timeout": timeout / 2,  # leaves time for a second try
        "socket_connect_timeout": timeout / 2,
        "health_check_interval": HEALTH_SECONDS,
        "retry": Retry(NoBackoff(), 0),  # PAUSES has them
    }
    try:
        if not _is_unix(url):
            options["socket_keepalive"] = True
        pool: Any = ConnectionPool.from_url(url, **options)
        pool.make_connection()  # opens nothing; knows every option by name
    except (TypeError, ValueError, redis_errors.RedisError):
        raise SettingsError(
            "REDIS_URL is not understood; it should read redis://host:6379/0, "
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
