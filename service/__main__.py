"""python -m service: settings -> uvicorn."""

# ruff: noqa: E402
import os

# NumPy's linear algebra has a thread pool of its own that spins for the CPUs which onnxruntime and
# the event loop need: on a busy machine moments took 20 to 60 times as long. Read when it loads.
for library in ("OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reports home unless told not to

import argparse
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from localmoments.errors import SettingsError
from localmoments.signals import ENDS, held_back
from service import settings as all_settings
from service.http import logging as logs
from service.http.keys import SCOPES, Scope, new_key, read_keys
from service.http.siblings import Siblings
from service.listening import bind, warn_if_open
from service.settings import Settings
from service.store.embedded import EmbeddedValkey
from service.workers import Workers, end_with_parent

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0001  # the thread that computes waits so long for the GIL, and not 5 ms


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
    executor = argparse.ArgumentParser(prog="python -m service executor")
    executor.add_argument("number", type=int)
    executor.add_argument("count", type=int)
    executor.add_argument("listener", type=int, help="its file descriptor")
    executor.add_argument("folder", type=Path, help="of the workers' sockets")
    return executor


def make_key(name: str, scopes: list[Scope]) -> int:
    """The entry on standard output, for `>> keys.toml`; the secret beside it, this once."""
    secret, entry = new_key(name, scopes)
    print(f"The key of {name}, which is kept nowhere:\n{secret}\n", file=sys.stderr, flush=True)
    print(entry)
    return 0


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words[:1] == ["executor"]:
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
        return serve(settings, listeners[0], store_url)


def work(asked: argparse.Namespace) -> int:
    """As one of several, started by service.workers, which has checked the settings."""
    settings, listener = all_settings.load(), socket.socket(fileno=asked.listener)
    logs.configure(settings.log_level)
    end_with_parent()
    siblings = Siblings(asked.folder, asked.number, asked.count)
    with kept_chains(settings) as store_url:
        return serve(settings, listener, store_url, siblings)


def serve(
    settings: Settings, listener: socket.socket, store_url: str, siblings: Siblings | None = None
) -> int:
    """Until it is asked to end. Only here is what computes loaded, which takes 40 MB: a process
    that looks after workers never comes here."""
    with held_back():
        from service.server import Server

    sys.setswitchinterval(SWITCH_SECONDS)
    server = Server(settings, listener, store_url, siblings)
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
    for number in ENDS:
        signal.signal(number, _leave)
    sys.exit(main())
