"""uvicorn as this service runs it: it says where it serves, and drains before it ends."""

import asyncio
import gc
import math
import signal
import socket
import time
from types import FrameType

import uvicorn

from localmoments.errors import LocalMomentsError
from service.app import create_app
from service.chains.service import ChainService
from service.engine.repository import Catalogue, ModelRepository
from service.http.http_protocol import bounded
from service.http.siblings import Siblings
from service.listening import url_of
from service.settings import Settings


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
            access_log=False,  # service.http.middleware writes a better one
            log_config=None,
            server_header=False,
        )
        super().__init__(config)
        self._models: ModelRepository = app.state.models
        self._chains: ChainService = app.state.chains
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
