"""Several processes behind one address, for many small requests.

Python runs one thread at a time, so that a process reads and writes requests on one CPU whatever
there is. Each executor is a whole service with a listening socket of its own; the system deals
connections out among them (SO_REUSEPORT). They share the store, and so every chain.

Here, in the process that the user started, nothing is served. Sockets stay open while a executor is
replaced, so that who connects meanwhile is served later. When this process ends for whatever
reason, kill -9 included, its ends of the workers' pipes close, and they end as at SIGTERM.
"""

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from localmoments.signals import ENDS

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
LEAST_SECONDS = 1.0  # from a executor's start to its successor's
STORE = "LOCALMOMENTS_REDIS_URL"  # not an argument, which everyone on the machine could read


class Workers:
    """One for each socket, until they are asked to end."""

    def __init__(self, listeners: Sequence[socket.socket], store_url: str) -> None:
        self._listeners = listeners
        self._environment = {**os.environ, STORE: store_url}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._begun = [0.0] * len(listeners)
        self._asked_to_end = False

    def run(self) -> int:
        """The exit code: that of the first executor that did not end as it should, or 0."""
        codes: list[int] = []
        with _private_folder() as self._folder:
            for asked in ENDS:
                signal.signal(asked, self._pass_on)
            for number in range(len(self._listeners)):
                self._start(number)
            while self._running:
                time.sleep(POLL_SECONDS)
                codes += [code for code in self._ended() if code]
                if self._asked_to_end:
                    self._let_go()
        return next(iter(codes), 0)

    def _start(self, number: int) -> None:
        listener = self._listeners[number].fileno()
        self._begun[number] = time.monotonic()
        words = ["executor", str(number), str(len(self._listeners)), str(listener), self._folder]
        self._running[number] = subprocess.Popen(
            [sys.executable, "-m", "service", *words],
            env=self._environment,
            stdin=subprocess.PIPE,  # never written to
            pass_fds=[listener],
            start_new_session=True,  # Ctrl-C reaches us, and workers through us
        )
        if self._asked_to_end:  # meanwhile
            self._running[number].terminate()

    def _ended(self) -> Iterator[int]:
        """Codes of those that have ended for good. One that could not start ends all of them; one
        that ends later is replaced."""
        for number, executor in list(self._running.items()):
            code = executor.poll()
            if code is None:
                continue
            if not self._asked_to_end and not self._has_served(number):
                self._pass_on(signal.SIGTERM, None)
            if self._asked_to_end:
                del self._running[number]
                # Our signal may meet one that does not yet handle it: no failure.
                yield 0 if code == -signal.SIGTERM else abs(code)
            elif time.monotonic() - self._begun[number] >= LEAST_SECONDS:
                log.error("a executor has ended and is replaced", extra={"fields": {"code": code}})
                self._start(number)

    def _let_go(self) -> None:
        """Or who connects would wait for a executor that will never be."""
        for listener in self._listeners:
            listener.close()

    def _has_served(self, number: int) -> bool:
        """By the socket on which it tells its figures."""
        return Path(self._folder, str(number)).exists()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_end = True
        for which, executor in self._running.items():
            executor.send_signal(number if self._has_served(which) else signal.SIGTERM)


@contextlib.contextmanager
def _private_folder() -> Iterator[str]:
    """For sockets, whose names must be short."""
    folder = tempfile.mkdtemp(prefix="lm-workers-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def end_with_parent() -> None:
    """In a executor: SIGTERM once nobody holds the other end of its standard input."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
