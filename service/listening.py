"""The listening socket, bound before anything slow is loaded so that a wrong address fails fast."""

import ipaddress
import logging
import socket

from localmoments.errors import SettingsError

log = logging.getLogger(__name__)

BACKLOG = 2048  # connections that wait to be accepted
# What the kernel holds of a response that is not yet sent. By default Linux takes 4 MB at once and
# then pieces of 1.4 MB, so that a slow reader would look like one that does not read at all.
UNSENT_BYTES = 2**17


def bind(host: str, port: int) -> socket.socket:
    """Listen on an address; raise SettingsError if that is not possible."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # connections inherit it from their listener
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"Cannot listen on {host}:{port}: {reason}.") from None
    return listener


def find_url(listener: socket.socket) -> str:
    """Return the address of a listening socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def warn_if_open(listener: socket.socket) -> None:
    """Warn that other machines can call a service that has no API keys."""
    if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        log.warning(
            "anyone who can reach %s can use it: no API keys are set (LOCALMOMENTS_KEYS_FILE)",
            find_url(listener),
        )
