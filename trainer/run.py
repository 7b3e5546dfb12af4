"""The folder of one training run: recipe, checkpoint, losses and pictures.

Every file is written beside its place and renamed into it, so a kill at any moment leaves the
old file or the new one, never half of one.
"""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.config import Recipe, make_recipe
from trainer.errors import RunFolderError, TrainerError, explain_write_errors

RECIPE = "recipe.json"
CHECKPOINT = "checkpoint.safetensors"
LOSSES = "losses.csv"
# What a process that was killed leaves; safetensors writes to a name of its own, and renames it.
HALVES = (f".{CHECKPOINT}.*", f".{LOSSES}.*", ".tmp*")


@dataclass(frozen=True)
class Run:
    """`runs/<name>/<number>/`"""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / CHECKPOINT

    def recipe(self) -> Recipe:
        try:
            body = json.loads((self.folder / RECIPE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.folder} is not a training run: {error}.") from None
        return make_recipe(body)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process trains in a folder at a time; the lock goes with the process."""
        with explain_write_errors(self.folder):
            lock = (self.folder / ".lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"Another process is training in {self.folder}.") from None
            for pattern in HALVES:
                for half in self.folder.glob(pattern):
                    half.unlink(missing_ok=True)
            yield


def new_run(runs: Path, recipe: Recipe) -> Run:
    """The next numbered folder below `runs/<name>/`, with the recipe in it."""
    with explain_write_errors(runs):
        base = runs / recipe.name
        base.mkdir(parents=True, exist_ok=True)
        folder = _numbered(base)
        write_text(folder / RECIPE, json.dumps(recipe.as_dict(), indent=1) + "\n")
    return Run(folder)


@contextlib.contextmanager
def removed_on_error(run: Run) -> Iterator[None]:
    """A new run whose data cannot be used leaves no empty folder behind."""
    try:
        yield
    except TrainerError:
        shutil.rmtree(run.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # other runs of that name stay
            run.folder.parent.rmdir()
        raise


def _numbered(base: Path) -> Path:
    """A new folder with the next free number, also where others take numbers meanwhile."""
    number = 1 + max((int(p.name) for p in base.iterdir() if p.name.isdecimal()), default=0)
    while True:
        try:
            (base / str(number)).mkdir()
            return base / str(number)
        except FileExistsError:
            number += 1


def last_run(runs: Path, name: str) -> Run:
    """The newest run of a name, for `--resume` without a folder."""
    base = runs / name
    numbers = [int(p.name) for p in base.glob("*") if p.name.isdecimal()]
    if not numbers:
        raise RunFolderError(f"There is no run of {name} below {runs} to resume.")
    return Run(base / str(max(numbers)))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` in one step when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        flush(temporary)
        temporary.replace(path)
        flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def flush(path: Path) -> None:
    """fsync a file or a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(models: Path, name: str) -> None:
    """See that a folder `models/name` could be made or filled; nothing is left behind."""
    place = models / name
    while not place.exists() and place != place.parent:
        place = place.parent
    with explain_write_errors(models), tempfile.TemporaryFile(dir=place):
        pass
