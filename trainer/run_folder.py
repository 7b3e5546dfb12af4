"""The folder of one training run, `runs/<name>/<number>/`: recipe, checkpoint, losses and plots."""

import contextlib
import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.atomic_files import next_version, write_text
from trainer.config import Recipe, make_recipe
from trainer.errors import RunFolderError, TrainerError, explain_write_errors

RECIPE = "recipe.json"
CHECKPOINT = "checkpoint.safetensors"
LOSSES = "losses.csv"
STAGING = "staging"
# Temporary files of a process that was killed: ours, and those of safetensors.
LEFTOVERS = (f".{CHECKPOINT}.*", f".{LOSSES}.*", ".tmp*")


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        """The file of the last checkpoint, which may not exist yet."""
        return self.path / CHECKPOINT

    @property
    def staging(self) -> Path:
        """The folder for data that is converted once because it is larger than memory."""
        return self.path / STAGING

    def read_recipe(self) -> Recipe:
        """Read the recipe of the run.

        Raises:
            RunFolderError: if this is not the folder of a run.
            RecipeError: if the recipe is not valid in this version.
        """
        try:
            body = json.loads((self.path / RECIPE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.path} is not a training run: {error}.") from None
        return make_recipe(body)

    @property
    def has_recipe(self) -> bool:
        """False in the folder of a process that was killed before it had chosen a recipe."""
        return (self.path / RECIPE).exists()

    def write_recipe(self, recipe: Recipe) -> None:
        """Write the recipe of the run."""
        with explain_write_errors(self.path):
            write_text(self.path / RECIPE, json.dumps(recipe.as_dict(), indent=1) + "\n")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the folder, so that only one process trains in it.

        The operating system releases the lock when the process ends. Temporary files that a killed
        process has left are removed.

        Raises:
            RunFolderError: if another process holds the lock.
        """
        with explain_write_errors(self.path):
            file = (self.path / ".lock").open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunFolderError(f"Another process is training in {self.path}.") from None
            for pattern in LEFTOVERS:
                for leftover in self.path.glob(pattern):
                    leftover.unlink(missing_ok=True)
            yield


def new_run(runs: Path, recipe: Recipe) -> RunFolder:
    """Create the next numbered folder in `runs/<name>/`, with the recipe in it."""
    run = new_run_folder(runs, recipe.name)
    run.write_recipe(recipe)
    return run


def new_run_folder(runs: Path, name: str) -> RunFolder:
    """Create the next numbered folder in `runs/<name>/`."""
    with explain_write_errors(runs):
        base = runs / name
        base.mkdir(parents=True, exist_ok=True)
        number = int(next_version(base))
        while True:
            try:
                (base / str(number)).mkdir()
                return RunFolder(base / str(number))
            except FileExistsError:  # another process has just taken the number
                number += 1


@contextlib.contextmanager
def remove_on_error(run: RunFolder) -> Iterator[None]:
    """Remove a new run if the block fails with a TrainerError, or before it writes the recipe."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, TrainerError) or not run.has_recipe:
            shutil.rmtree(run.path, ignore_errors=True)
            with contextlib.suppress(OSError):  # fails if there are other runs with this name
                run.path.parent.rmdir()
        raise


def newest_run(runs: Path, name: str) -> RunFolder:
    """The run with the highest number in `runs/<name>/`, of those that have a recipe.

    Raises:
        RunFolderError: if there is none.
    """
    base = runs / name
    folders = [p for p in base.glob("*") if p.name.isdecimal() and RunFolder(p).has_recipe]
    if not folders:
        raise RunFolderError(f"There is no run of {name} in {runs} to resume.")
    return RunFolder(max(folders, key=lambda folder: int(folder.name)))


def check_writable(models: Path, name: str) -> None:
    """Check that the folder `models/<name>` can be created or written; leave nothing behind.

    Raises:
        RunFolderError: if it cannot.
    """
    place = models / name
    while not place.exists() and place != place.parent:
        place = place.parent
    with explain_write_errors(models), tempfile.TemporaryFile(dir=place):
        pass
