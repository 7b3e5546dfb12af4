"""The commands of the trainer: find the recipe, the data and the folders, then run.

This module loads NumPy and the data readers. torch is imported only after the command line, the
recipe and the data have been checked, because that takes seconds.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmoments.artefact import MANIFEST
from localmoments.model import find_folder
from localmoments.signals import delay_signals
from trainer.config import (
    Recipe,
    apply_settings,
    default_recipe,
    find_recipe,
    make_recipe,
    name_from_path,
    read_recipe,
)
from trainer.data import Dataset, describe, inspect_rows, load, split
from trainer.data.known_sets import set_path
from trainer.errors import RecipeError
from trainer.run_folder import (
    RunFolder,
    check_writable,
    new_run,
    new_run_folder,
    newest_run,
    remove_on_error,
)

if TYPE_CHECKING:
    from trainer.prepare import Prepared


def fit(args: argparse.Namespace) -> None:
    """Train a model and export it, or continue a run."""
    recipe, prepared, run = start_run(args) if args.resume is None else continue_run(args)
    with delay_signals():
        from trainer.pipeline import train_and_export
    train_and_export(recipe, prepared, run, args.models)


def _prepare(recipe: Recipe, dataset: Dataset) -> "Prepared":
    with delay_signals():  # an interruption would leave torch half imported
        from trainer.prepare import prepare
    return prepare(recipe, dataset)


def export(args: argparse.Namespace) -> None:
    """Export the weights of a run or of an artefact as a new version."""
    folder = Path(args.run)
    is_artefact = (folder / MANIFEST).exists()
    recipe = None if is_artefact else RunFolder(folder).read_recipe()
    with delay_signals():
        from trainer import pipeline
    if recipe is None:
        pipeline.export_artefact(folder, args.data, args.models)
    else:
        pipeline.export_run(recipe, RunFolder(folder), args.models)


def evaluate(args: argparse.Namespace) -> None:
    """Measure a model and write the results into its artefact."""
    folder = find_folder(args.artefact, args.models)
    with delay_signals():
        from trainer.evaluate.command import evaluate_artefact
    evaluate_artefact(args, folder)


def data(args: argparse.Namespace) -> None:
    """Print what a data set looks like and how it would be normalised."""
    body = {"source": args.source} | ({"path": args.data} if args.data else {})
    recipe = make_recipe(apply_settings({"name": "data", "data": body}, args.settings))
    dataset = load(recipe.data, None)
    parts = split(dataset, recipe.data)
    print(describe(dataset, inspect_rows(dataset, recipe.data, parts.train)))


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "fit": fit,
    "export": export,
    "evaluate": evaluate,
    "data": data,
}


@dataclass(frozen=True)
class RecipeRequest:
    """The recipe that the arguments of `fit` describe."""

    body: Mapping[str, Any]  # the tables of a recipe file, or only those that the arguments give
    settings: Sequence[str]  # of --set
    is_complete: bool  # False if the size of the data decides what the body leaves out

    def make(self, dataset: Dataset | None = None) -> Recipe:
        """Make the recipe. An incomplete one without data has its name and data options only.

        Raises:
            RecipeError: if a setting is wrong.
        """
        recipe = make_recipe(apply_settings(self.body, self.settings))
        if self.is_complete or dataset is None:
            return recipe
        defaults = default_recipe(recipe.name, dataset.rows, dataset.dims)
        return make_recipe(apply_settings({**defaults, "data": self.body["data"]}, self.settings))


def read_request(args: argparse.Namespace) -> RecipeRequest:
    """Read the recipe file, if there is one.

    Raises:
        RecipeError: if the arguments name neither a recipe nor data, or the file is not readable.
    """
    path = find_recipe(args.recipe) if args.recipe else None
    if path is not None:
        body = read_recipe(path)
        body.setdefault("name", path.stem)
        body.setdefault("data", {})
        if args.data:
            body["data"] = set_path(body["data"], args.data)
    elif args.recipe or args.data:
        source = args.recipe or args.data
        body = {"name": name_from_path(source), "data": {"source": source}}
        if args.recipe and args.data:
            body["data"]["path"] = args.data
    else:
        raise RecipeError("Name a recipe or a data file, for example: localmoments fit FILE.")
    if args.name:
        body["name"] = args.name
    return RecipeRequest(body, args.settings, is_complete=path is not None)


def start_run(args: argparse.Namespace) -> "tuple[Recipe, Prepared, RunFolder]":
    """Create a run for the recipe that the arguments describe, and read its data.

    Raises:
        RecipeError: if there is no such recipe, or a setting is wrong.
        DataError: if the data cannot be read.
    """
    request = read_request(args)
    recipe = request.make()  # checks the settings before the data is read, which may take long
    check_writable(args.models, recipe.name)  # now, not after hours of training
    if request.is_complete:
        run = new_run(args.runs, recipe)
    else:
        run = new_run_folder(args.runs, recipe.name)
    with remove_on_error(run):
        dataset = load(recipe.data, run.staging)
        if not request.is_complete:
            recipe = request.make(dataset)
            run.write_recipe(recipe)
        return recipe, _prepare(recipe, dataset), run


def continue_run(args: argparse.Namespace) -> "tuple[Recipe, Prepared, RunFolder]":
    """Find the run to continue, and read its data.

    Raises:
        RecipeError: if the arguments also describe a recipe, and it is not that of the run.
        RunFolderError: if there is no such run.
    """
    if args.resume:
        run = RunFolder(Path(args.resume))
    else:
        run = newest_run(args.runs, args.name or read_request(args).make().name)
    recipe = run.read_recipe()
    request = read_request(args) if args.recipe else _change_recipe(recipe, args)
    dataset = None
    if not request.is_complete and request.make().data == recipe.data:
        dataset = load(recipe.data, run.staging)
    requested = request.make(dataset)
    if requested != recipe:
        keys = ", ".join(_list_differences(requested.as_dict(), recipe.as_dict(), ""))
        raise RecipeError(f"{run.path} was started with other settings ({keys}); resume it "
                          "without them, or start a new run without --resume.")  # fmt: skip
    print(f"Resuming {run.path}.", file=sys.stderr, flush=True)
    return recipe, _prepare(recipe, dataset or load(recipe.data, run.staging)), run


def _change_recipe(recipe: Recipe, args: argparse.Namespace) -> RecipeRequest:
    """The recipe of a run with the name, data and settings of the arguments."""
    body = recipe.as_dict()
    if args.data:
        body["data"] = set_path(body["data"], args.data)
    if args.name:
        body["name"] = args.name
    return RecipeRequest(body, args.settings, is_complete=True)


def _list_differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str) -> list[str]:
    keys = []
    for key in a:
        if isinstance(a[key], Mapping) and isinstance(b.get(key), Mapping):
            keys += _list_differences(a[key], b[key], f"{prefix}{key}.")
        elif a[key] != b.get(key):
            keys.append(f"{prefix}{key}")
    return keys
