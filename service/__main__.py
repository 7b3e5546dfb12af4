"""python -m service: settings -> uvicorn."""

# ruff: noqa: E402
import os

# NumPy's linear algebra has a thread pool of its own that spins for the CPUs which onnxruntime and
# the event loop need: on a busy machine moments took 20 to 60 times as long. Read when it loads.
for library in ("OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import argparse
import signal
import socket
import sys

import uvicorn

from service import settings as all_settings
from service.api import logs
from service.app import create_app
from service.core.errors import LocalMomentsError, SettingsError
from service.engine.repository import Catalogue, Repository
from service.settings import Settings


class Server(uvicorn.Server):
    """uvicorn, that says where it serves once it does."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        app = create_app(settings)
        config = uvicorn.Config(
            app,
            access_log=False,  # service.api.middleware writes a better one
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=settings.grace_seconds,
        )
        super().__init__(config)
        self._models: Repository = app.state.models
        self._listener = listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(announcement(_url(self._listener), self._models.catalogue), flush=True)


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


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or one sentence why there is none."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"{host}:{port} cannot be listened on: {reason}.") from None
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="python -m service",
        description="Serve the models of a folder over HTTP. Settings are environment variables:",
        epilog=all_settings.table(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def main(arguments: list[str] | None = None) -> int:
    parser().parse_args(arguments)
    try:
        settings = all_settings.load()
        listener = bind(settings.host, settings.port)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in all_settings.unknown_names():
        print(f"warning: {name} is set, but there is no such setting.", file=sys.stderr)
    logs.configure(settings.log_level)
    server = Server(settings, listener)
    server.run(sockets=[listener])
    return 0 if server.started else 1


def _leave(number: int, frame: object) -> None:
    """uvicorn raises the signal again after its clean end, which then is no failure."""
    sys.exit(0)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    sys.exit(main())
