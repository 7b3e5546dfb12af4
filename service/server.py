"""The uvicorn server: listen, announce the models, and drain calls before it stops."""

import asyncio
import gc
import math
import signal
import socket
import time
from types import FrameType

import uvicorn

from service.app import create_app
from service.chains.service import ChainService
from service.engine.repository import Catalogue, ModelRepository
from service.listening import find_url
from service.settings import Settings


class Server(uvicorn.Server):
    """uvicorn with a drain.

    After SIGTERM the service is not ready, but takes connections for `drain_seconds`, so that load
    balancers notice. Streams end at their next step with a request to resume. Other calls have half
    of `grace_seconds` to finish. Any other signal, or a second SIGTERM, skips the rest of
    `drain_seconds`.
    """

    def __init__(self, settings: Settings, listener: socket.socket, store_url: str) -> None:
        app = create_app(settings, store_url)
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            access_log=False,  # service.http.middleware writes one
            log_config=None,
            server_header=False,
        )
        super().__init__(config)
        self._models: ModelRepository = app.state.models
        self._chains: ChainService = app.state.chains
        self._listener, self._settings = listener, settings
        self._terminated_at: float | None = None  # monotonic time of the first signal
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # a full collection of everything loaded by now would stop requests for 50 ms
        if self.started:
            print(make_announcement(find_url(self._listener), self._models.catalogue), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal and leave the drain to the event loop.

        The interrupted code may hold the lock of a chain's job, which draining needs.
        """
        is_first = self._terminated_at is None
        self._terminated_at = self._terminated_at or time.monotonic()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._drain)
        if sig != signal.SIGTERM or not is_first:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        """Drain, and stop once the calls have ended or the time is over; uvicorn calls it often."""
        if self._terminated_at is not None:
            seconds_left = self._drain()
            is_seen = self._waited >= self._settings.drain_seconds
            is_idle = is_seen and not self._chains.running
            self.should_exit = self.should_exit or is_idle or seconds_left <= 0
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let calls go on for the rest of the grace period, then close their connections."""
        closing = asyncio.create_task(self._close_connections())
        self.config.timeout_graceful_shutdown = max(1, math.ceil(self._drain())) + 1
        await super().shutdown(sockets)
        closing.cancel()

    async def _close_connections(self) -> None:
        while (seconds_left := self._drain()) > 0:
            await asyncio.sleep(min(seconds_left, 0.1))
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _drain(self) -> float:
        """Ask calls to end; return the seconds left of the grace period."""
        grace = self._settings.grace_seconds
        self._chains.drain(whole=self._waited > grace / 2)
        return grace - self._waited

    @property
    def _waited(self) -> float:
        """Seconds since the first signal."""
        return time.monotonic() - (self._terminated_at or time.monotonic())


def make_announcement(url: str, served: Catalogue) -> str:
    """Return one line with the models, the address, and the models that were refused."""
    models = ", ".join(m.manifest.reference for m in served.newest()) or "no model"
    refused = ", ".join(f"{r.model} ({r.reason.rstrip('.')})" for r in served.refused)
    default = served.find_default() or f"{served.default}, which does not exist"
    shown = f" (default {default})" if served.models else ""
    return f"Serving {models}{shown} at {url}" + (f"; refused: {refused}" if refused else "")
