"""Errors of the trainer, and the sentences for errors of the operating system.

    Exception
    └── TrainerError          one clear sentence for the person at the terminal
        ├── RecipeError       a setting that does not exist, or a value it cannot have
        ├── DataError         data that cannot be read or learned from
        ├── TrainingError     the fit failed, for example because the loss became NaN
        ├── ExportError       the artefact could not be written or verified
        └── RunFolderError    an output folder: not writable, disk full, already exists

The command line prints the sentence and exits with status 2. Any other exception is a bug and
keeps its traceback.
"""

import errno
import gzip
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class TrainerError(Exception):
    """A failure described by one sentence that says what is wrong and what to do."""


class RecipeError(TrainerError):
    """A setting that does not exist, or a value it cannot have."""


class DataError(TrainerError):
    """Data that cannot be read or learned from."""


class TrainingError(TrainerError):
    """A fit that cannot continue."""


class ExportError(TrainerError):
    """An artefact that could not be written or verified."""


class RunFolderError(TrainerError):
    """An output folder that cannot be written: no permission, no space, or it already exists."""


@contextmanager
def explain_read_errors(path: Path) -> Iterator[None]:
    """Turn errors raised while reading `path` into a DataError with one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"There is no file or folder {error.filename or path}.") from error
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: permission denied.") from error
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged or cut short ({one_line(error)}).") from error
    except (MemoryError, OverflowError) as error:
        raise DataError(f"A row of {path} is too long for this machine's memory.") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({one_line(error)}).") from error


@contextmanager
def explain_write_errors(folder: Path) -> Iterator[None]:
    """Turn errors raised while writing into `folder` into a RunFolderError with one sentence."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise RunFolderError(f"{folder} cannot be written: {reason}.") from error
    except Exception as error:
        # safetensors wraps errors of the operating system. It is matched by name so that this
        # module does not import it.
        if type(error).__name__ == "SafetensorError" and "os error" in str(error):
            full = "os error 28" in str(error)  # ENOSPC
            reason = "the disk is full" if full else str(error)
            raise RunFolderError(f"{folder} cannot be written: {reason}.") from error
        raise


def one_line(error: BaseException) -> str:
    """Return the message of `error` on one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__
