"""The commands of the trainer: find the recipe, the data and the folders, then run.

This module loads NumPy and the data readers. torch is imported only after the command line, the
recipe and the data have been checked, because that takes seconds.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmoments.artefact import MANIFEST
from localmoments.errors import ArtefactError
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
from trainer.data.known_sets import KNOWN_SETS
from trainer.errors import RecipeError
from trainer.run_folder import RunFolder, check_writable, new_run, newest_run, remove_on_error

if TYPE_CHECKING:
    from trainer.prepare import Prepared


def fit(args: argparse.Namespace) -> None:
    """Train a model and export it, or continue a run."""
    if args.resume is None:
        recipe, dataset = choose_recipe(args)
        check_writable(args.models, recipe.name)  # now, not after hours of training
        run = new_run(args.runs, recipe)
        with remove_on_error(run):
            prepared = _prepare(recipe, dataset or load(recipe.data, run.staging))
    else:
        run = find_run(args)
        recipe = run.read_recipe()
        prepared = _prepare(recipe, load(recipe.data, run.staging))
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
    folder = find_artefact(args.artefact, args.models)
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


def choose_recipe(args: argparse.Namespace) -> tuple[Recipe, Dataset | None]:
    """The recipe that the arguments of `fit` describe, and the data if it had to be read for that.

    Raises:
        RecipeError: if there is no such recipe, or a setting is wrong.
        DataError: if there is no recipe and the data cannot be read.
    """
    path = find_recipe(args.recipe) if args.recipe else None
    if path is None:
        return _choose_recipe_for_data(args)
    body = read_recipe(path)
    body.setdefault("name", path.stem)
    body.setdefault("data", {})
    if args.data:
        is_known_set = body["data"].get("source") in KNOWN_SETS
        body["data"]["path" if is_known_set else "source"] = args.data
    if args.name:
        body["name"] = args.name
    return make_recipe(apply_settings(body, args.settings)), None


def _choose_recipe_for_data(args: argparse.Namespace) -> tuple[Recipe, Dataset]:
    """Read data that has no recipe, and choose one by its size."""
    source = args.recipe or args.data
    if not source:
        raise RecipeError("Name a recipe or a data file, for example: localmoments fit FILE.")
    body: dict[str, Any] = {"name": name_from_path(source), "data": {"source": source}}
    if args.recipe and args.data:
        body["data"]["path"] = args.data
    if args.name:
        body["name"] = args.name
    # The settings are checked before the data is read, which may take long.
    first = make_recipe(apply_settings(body, args.settings))
    dataset = load(first.data, None)
    defaults = default_recipe(first.name, dataset.rows, dataset.dims)
    recipe = make_recipe(apply_settings({**defaults, "data": body["data"]}, args.settings))
    return recipe, dataset


def find_run(args: argparse.Namespace) -> RunFolder:
    """The run to continue.

    Raises:
        RecipeError: if the arguments also describe a recipe, and it is not that of the run.
        RunFolderError: if there is no such run.
    """
    if args.resume:
        run = RunFolder(Path(args.resume))
    else:
        run = newest_run(args.runs, args.name or choose_recipe(args)[0].name)
    recipe = run.read_recipe()
    if args.recipe or args.data or args.settings or args.name:
        requested, _ = choose_recipe(args)
        if requested != recipe:
            keys = ", ".join(_list_differences(requested.as_dict(), recipe.as_dict(), ""))
            raise RecipeError(f"{run.path} was started with other settings ({keys}); resume it "
                              "without them, or start a new run without --resume.")  # fmt: skip
    print(f"Resuming {run.path}.", file=sys.stderr, flush=True)
    return run


def _list_differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str) -> list[str]:
    keys = []
    for key in a:
        if isinstance(a[key], Mapping) and isinstance(b.get(key), Mapping):
            keys += _list_differences(a[key], b[key], f"{prefix}{key}.")
        elif a[key] != b.get(key):
            keys.append(f"{prefix}{key}")
    return keys


def find_artefact(reference: str, models: Path) -> Path:
    """The folder of a model from a path, a name (its newest version) or name@version.

    Raises:
        ArtefactError: if there is no such model.
    """
    if (Path(reference) / MANIFEST).exists():
        return Path(reference)
    name, _, version = reference.partition("@")
    base = models / name
    versions = sorted((p.name for p in base.glob("*") if p.name.isdecimal()), key=int)
    if not versions or (version and version not in versions):
        raise ArtefactError(
            f"There is no model {reference} in {models}, and no folder with that path."
        )
    return base / (version or versions[-1])
