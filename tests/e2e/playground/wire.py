"""A line between browser and service that is slow, and that can be cut and mended."""

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

PIECE = 4096  # bytes


@dataclass
class Wire:
    """Listens on a port of its own; what arrives goes to `address`, and slowly back."""

    address: tuple[str, int]
    bytes_per_second: float
    whole: bool = True
    _ends: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection breaks, and new ones do at once."""
        self.whole = False
        for end in self._ends:
            _break(end)

    def mend(self) -> None:
        self.whole = True

    def close(self) -> None:
        self.cut()
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the door was closed
            while True:
                near = self._door.accept()[0]
                if not self.whole:
                    near.close()
                    continue
                far = socket.create_connection(self.address)
                self._ends += [near, far]
                for way in ((near, far, 0.0), (far, near, PIECE / self.bytes_per_second)):
                    threading.Thread(target=self._carry, args=way, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, pause: float) -> None:
        with contextlib.suppress(OSError):  # either end may leave at any time
            while piece := source.recv(PIECE):
                target.sendall(piece)
                time.sleep(pause)
        for end in (source, target):
            _break(end)


def _break(end: socket.socket) -> None:
    """At once, for both sides: a peer that only stops reading would be waited for."""
    with contextlib.suppress(OSError):  # it may have ended by itself
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()
