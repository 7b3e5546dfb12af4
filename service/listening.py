"""Where the service listens: one socket, or one a executor on the same port."""

import ipaddress
import logging
import socket

from localmoments.errors import SettingsError

log = logging.getLogger(__name__)


def bind(host: str, port: int, count: int = 1) -> list[socket.socket]:
    """Listening sockets of one address, or one sentence why there are none."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listeners: list[socket.socket] = []
        for _ in range(count):
            listener = socket.socket(family, kind)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if listeners:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            if count > 1:  # only now, so that the first finds out whether another server is there
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listeners.append(listener)
            address = listener.getsockname()
        for listener in listeners:
            listener.listen(2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"{host}:{port} cannot be listened on: {reason}.") from None
    return listeners


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def warn_if_open(listener: socket.socket) -> None:
    if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        log.warning(
            "anyone who reaches %s may use it, because LOCALMOMENTS_KEYS_FILE names no API keys",
            url_of(listener),
        )
