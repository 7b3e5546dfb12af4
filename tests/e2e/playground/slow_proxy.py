"""A slow TCP proxy between browser and service that can be cut and repaired."""

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

CHUNK = 4096  # bytes


@dataclass
class SlowProxy:
    """Listens on a port of its own and forwards to `address`; responses are slowed down."""

    address: tuple[str, int]
    bytes_per_second: float
    is_up: bool = True
    _sockets: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset every connection, and refuse new ones."""
        self.is_up = False
        for end in self._sockets:
            _reset(end)

    def repair(self) -> None:
        self.is_up = True

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                client = self._listener.accept()[0]
                if not self.is_up:
                    client.close()
                    continue
                server = socket.create_connection(self.address)
                self._sockets += [client, server]
                delay = CHUNK / self.bytes_per_second
                for pipe in ((client, server, 0.0), (server, client, delay)):
                    threading.Thread(target=self._forward, args=pipe, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, delay: float) -> None:
        with contextlib.suppress(OSError):  # either side may close at any time
            while chunk := source.recv(CHUNK):
                target.sendall(chunk)
                time.sleep(delay)
        for end in (source, target):
            _reset(end)


def _reset(end: socket.socket) -> None:
    """Close at once for both sides; otherwise the peer would wait for unread data."""
    with contextlib.suppress(OSError):  # it may be closed already
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()
