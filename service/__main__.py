"""python -m service: settings -> uvicorn."""

# ruff: noqa: E402
import os

# NumPy's linear algebra has a thread pool of its own that spins for the CPUs which onnxruntime and
# the event loop need: on a busy machine moments took 20 to 60 times as long. Read when it loads.
for library in ("OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports home unless told not to

import argparse
import asyncio
import contextlib
import gc
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from service import settings as all_settings
from service.api import logs
from service.api.connections import bounded
from service.api.keys import SCOPES, Scope, new_key, read_keys
from service.api.siblings import Siblings
from service.app import create_app
from service.chains.use_cases import Chains
from service.core.errors import LocalMomentsError, SettingsError
from service.engine.repository import Catalogue, Repository
from service.listening import bind, url_of, warn_if_open
from service.settings import Settings
from service.store.embedded import EmbeddedValkey
from service.workers import Workers, end_with_parent

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0001  # the thread that computes waits so long for the GIL, and not 5 ms


class Server(uvicorn.Server):
    """uvicorn, that says where it serves once it does."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        store_url: str,
        siblings: Siblings | None = None,
    ) -> None:
        app = create_app(settings, store_url, siblings)
        config = uvicorn.Config(
            app,
            http=bounded(settings.body_seconds, settings.write_seconds, app.refusal, app.express),
            ws="none",
            access_log=False,  # service.api.edge writes a better one
            log_config=None,
            server_header=False,
        )
        super().__init__(config)
        self._models: Repository = app.state.models
        self._chains: Chains = app.state.chains
        self._listener = listener
        self._siblings = siblings
        self._settings = settings
        self._asked_to_end: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is there now stays: looking through it again would stop all for 50 ms
        if self.started and self._siblings is None:
            self._announce()
        elif self.started and self._siblings and self._siblings.number == 0:
            self._announcing = asyncio.create_task(self._announce_all(self._siblings))

    async def _announce_all(self, siblings: Siblings) -> None:
        await siblings.are_there()
        self._announce()

    def _announce(self) -> None:
        print(announcement(url_of(self._listener), self._models.catalogue), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM: not ready at once, and an end in good time. Another signal: the end."""
        first = self._asked_to_end is None
        self._asked_to_end = self._asked_to_end or time.monotonic()
        self._chains.drain(whole=False)
        if sig != signal.SIGTERM or not first:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """While it drains, connections are still taken, so that readiness can be seen to be gone;
        streams end at their next step, and other calls have half of the grace time."""
        if self._asked_to_end is not None:
            left = self._drain()
            idle = self._waited >= self._settings.drain_seconds and not self._chains.running
            self.should_exit = self.should_exit or idle or left <= 0
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Calls go on for what is left of the grace time; who has not read by then is left."""
        leaving = asyncio.create_task(self._leave_in_time())
        self.config.timeout_graceful_shutdown = max(1, math.ceil(self._drain())) + 1
        await super().shutdown(sockets)
        leaving.cancel()

    async def _leave_in_time(self) -> None:
        while (left := self._drain()) > 0:
            await asyncio.sleep(min(left, 0.1))
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _drain(self) -> float:
        """What is left of the grace time; calls that walk end in its first half."""
        grace = self._settings.grace_seconds
        self._chains.drain(whole=self._waited > grace / 2)
        return grace - self._waited

    @property
    def _waited(self) -> float:
        return time.monotonic() - (self._asked_to_end or time.monotonic())


def announcement(url: str, served: Catalogue) -> str:
    """One line: which models at which address, and what was refused."""
    models = ", ".join(m.manifest.reference for m in served.newest()) or "no model"
    refused = ", ".join(f"{r.model} ({r.reason.rstrip('.')})" for r in served.refused)
    default = f" (default {_default(served)})" if served.models else ""
    return f"Serving {models}{default} at {url}" + (f"; refused: {refused}" if refused else "")


def _default(served: Catalogue) -> str:
    try:
        return served.find().manifest.reference
    except LocalMomentsError:
        return f"{served.default}, which is not there"


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="python -m service",
        description="Serve the models of a folder over HTTP. Settings are environment variables:",
        epilog=all_settings.table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    key = whole.add_subparsers(dest="command").add_parser("key", help="make an API key")
    key.add_argument("name", help="whose key it is")
    key.add_argument("--scopes", nargs="+", choices=SCOPES, default=["read", "sample"])
    return whole


def worker_parser() -> argparse.ArgumentParser:
    """For service.workers alone."""
    worker = argparse.ArgumentParser(prog="python -m service worker")
    worker.add_argument("number", type=int)
    worker.add_argument("count", type=int)
    worker.add_argument("listener", type=int, help="its file descriptor")
    worker.add_argument("folder", type=Path, help="of the workers' sockets")
    return worker


def make_key(name: str, scopes: list[Scope]) -> int:
    """The entry on standard output, for `>> keys.toml`; the secret beside it, this once."""
    secret, entry = new_key(name, scopes)
    print(f"The key of {name}, which is kept nowhere:\n{secret}\n", file=sys.stderr, flush=True)
    print(entry)
    return 0


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words[:1] == ["worker"]:
            return work(worker_parser().parse_args(words[1:]))
        asked = parser().parse_args(words)
        return make_key(asked.name, asked.scopes) if asked.command == "key" else begin()
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def begin() -> int:
    settings = all_settings.load()
    keys = read_keys(settings.keys_file)  # a fault is told before anything starts
    listeners = bind(settings.host, settings.port, settings.workers)
    for name in all_settings.unknown_names():
        print(f"warning: {name} is set, but there is no such setting.", file=sys.stderr)
    logs.configure(settings.log_level)
    if not keys:
        warn_if_open(listeners[0])
    with kept_chains(settings) as store_url:
        if settings.workers > 1:
            return Workers(listeners, store_url).run()
        return serve(Server(settings, listeners[0], store_url), listeners[0])


def work(asked: argparse.Namespace) -> int:
    """As one of several, started by service.workers, which has checked the settings."""
    settings, listener = all_settings.load(), socket.socket(fileno=asked.listener)
    logs.configure(settings.log_level)
    end_with_parent()
    siblings = Siblings(asked.folder, asked.number, asked.count)
    with kept_chains(settings) as store_url:
        return serve(Server(settings, listener, store_url, siblings), listener)


def serve(server: Server, listener: socket.socket) -> int:
    sys.setswitchinterval(SWITCH_SECONDS)
    server.run(sockets=[listener])
    return 0 if server.started else 1


@contextlib.contextmanager
def kept_chains(settings: Settings) -> Iterator[str]:
    """The URL of the store: a given one, or that of a Valkey of our own while this lasts."""
    if settings.redis_url is not None:
        yield settings.redis_url.get_secret_value()
        return
    valkey = EmbeddedValkey(settings.store_folder)
    url = valkey.start()
    log.info("chains are kept by an embedded Valkey in %s", settings.store_folder.absolute())
    try:
        yield url
    finally:
        valkey.stop()


def _leave(number: int, frame: object) -> None:
    """uvicorn raises the signal again after its clean end, which then is no failure."""
    sys.exit(0)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    sys.exit(main())
