"""Files and folders that appear whole or not at all.

Each is written under a temporary name on the same file system, flushed to disk and renamed, so a
process that is killed at any moment leaves the old file or the new one, never half of one.
"""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainer.errors import ExportError, explain_write_errors
from trainer.interrupts import INTERRUPT


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; it becomes `path` when the block ends without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        fsync(temporary)
        temporary.replace(path)
        fsync(path.parent)  # the rename itself is a change of the folder
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def new_version(models: Path, name: str) -> Iterator[tuple[Path, str]]:
    """Yield a temporary folder to fill and its version number.

    The folder becomes `models/<name>/<version>` when the block ends without an error. A version is
    never overwritten: renaming onto a folder that has files in it fails.

    Raises:
        ExportError: if another process has taken the number meanwhile. Export again.
        RunFolderError: if the folder cannot be written.
        KeyboardInterrupt: if the process was told to stop during the block.
    """
    with explain_write_errors(models):
        base = models / name
        base.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=base, prefix=".new-"))
        try:
            number = next_version(base)
            yield temporary, number
            INTERRUPT.check()
            for path in temporary.iterdir():
                path.chmod(0o644)  # readable for a service that runs as another user
                fsync(path)
            temporary.chmod(0o755)
            fsync(temporary)
            _rename(temporary, base / number)
            fsync(base)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with contextlib.suppress(OSError):  # fails unless the model has no version
                os.rmdir(base)


def _rename(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise ExportError(f"Another process has just created {folder}; export again.") from None


def next_version(base: Path) -> str:
    """One above the highest number in the folder."""
    return str(1 + max((int(p.name) for p in base.iterdir() if p.name.isdecimal()), default=0))


def fsync(path: Path) -> None:
    """Flush a file or a folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
