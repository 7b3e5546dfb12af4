"""Writing an artefact: a whole new version appears in one step, or nothing does."""

import contextlib
import errno
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trainer.errors import ExportError, explain_write_errors
from trainer.interrupts import INTERRUPT
from trainer.run import flush

LIBRARIES = (
    "localmoments", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "onnxscript", "safetensors",
    "torch",
)  # fmt: skip


@contextlib.contextmanager
def new_version(models: Path, name: str) -> Iterator[tuple[Path, str]]:
    """A temporary folder to fill; it becomes `models/<name>/<version>` when the block ends well.

    A rename onto a folder that exists fails, so no version is ever written over; if another
    process took the number meanwhile, the whole export fails and can be run again.
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
                path.chmod(0o644)
                flush(path)
            temporary.chmod(0o755)
            flush(temporary)
            _rename(temporary, base / number)
            flush(base)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with contextlib.suppress(OSError):  # a model's first version that failed: no folder
                os.rmdir(base)


def _rename(temporary: Path, folder: Path) -> None:
    try:
        temporary.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise ExportError(
            f"{folder} was made by another process meanwhile; export again."
        ) from None


def next_version(base: Path) -> str:
    """One above the highest that is there."""
    return str(1 + max((int(p.name) for p in base.iterdir() if p.name.isdecimal()), default=0))


def library_versions() -> dict[str, str]:
    """Those that are there: onnxruntime goes by another name where it is built for GPUs."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
