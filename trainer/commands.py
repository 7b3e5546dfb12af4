"""What each command does; the command line itself is read in __main__."""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from localmoments.artefact import MANIFEST, START_POINTS, WEIGHTS, Manifest
from localmoments.errors import ArtefactError
from localmoments.model import Model
from trainer import checkpoint
from trainer.autoencoder import AutoEncoder
from trainer.config import Recipe, find_recipe, make_recipe, read_recipe, with_settings
from trainer.data import describe, inspect_rows, load, split
from trainer.data.known_sets import KNOWN_SETS
from trainer.defaults import default_recipe, name_of
from trainer.errors import RecipeError, RunFolderError
from trainer.evaluate import first_look, held_rows
from trainer.evaluate.command import data_options, evaluate_artefact
from trainer.evaluate.trust import typical_quantiles
from trainer.export import CARD, Chains, export, make_chains
from trainer.fit import VALIDATION_ROWS, fit, load_weights, reached
from trainer.gallery import draw_gallery
from trainer.prepare import Prepared, held_out_rows, prepare
from trainer.run import Run, check_writable, last_run, new_run, removed_on_error

STAGING = "staging"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fit_command(args: argparse.Namespace) -> None:
    """Train, draw, export; or go on where a run stopped."""
    if args.resume is None:
        recipe = recipe_of(args)
        check_writable(args.models, recipe.name)  # now, and not after hours of training
        run = new_run(args.runs, recipe)
        with removed_on_error(run):
            prepared = prepare(recipe, run.folder / STAGING)
    else:
        run = _resumed(args)
        recipe = run.recipe()
        prepared = prepare(recipe, run.folder / STAGING)
    for note in (*prepared.dataset.notes, *prepared.inspection.notes):
        say(f"Note: {note}")
    say(f"Training {recipe.name} on {len(prepared.split.train):,} rows of {prepared.dataset.dims}; "
        f"the run is in {run.folder}.")  # fmt: skip
    ae = fit(recipe, prepared, run)
    _publish(recipe, prepared, ae, run, args.models)


def _resumed(args: argparse.Namespace) -> Run:
    """The run to go on with; a recipe that is also given must be the run's own."""
    if args.resume:
        run = Run(Path(args.resume))
    else:
        run = last_run(args.runs, args.name or recipe_of(args).name)
    stored = run.recipe()
    if args.recipe or args.data or args.settings or args.name:
        asked = recipe_of(args)
        if asked != stored:
            keys = ", ".join(_differences(asked.as_dict(), stored.as_dict(), ""))
            raise RecipeError(f"{run.folder} was begun with other settings ({keys}); resume it "
                              "without them, or start a new run without --resume.")  # fmt: skip
    say(f"Going on with {run.folder}.")
    return run


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], at: str) -> list[str]:
    keys = []
    for key in a:
        if isinstance(a[key], Mapping) and isinstance(b.get(key), Mapping):
            keys += _differences(a[key], b[key], f"{at}{key}.")
        elif a[key] != b.get(key):
            keys.append(f"{at}{key}")
    return keys


def recipe_of(args: argparse.Namespace) -> Recipe:
    """The recipe that the words of a command line ask for."""
    path = find_recipe(args.recipe) if args.recipe else None
    if path is None:
        return _recipe_for_data(args)
    body = read_recipe(path)
    body.setdefault("name", path.stem)
    body.setdefault("data", {})
    if args.data:
        named = body["data"].get("source") in KNOWN_SETS
        body["data"]["path" if named else "source"] = args.data
    if args.name:
        body["name"] = args.name
    return make_recipe(with_settings(body, args.settings))


def _recipe_for_data(args: argparse.Namespace) -> Recipe:
    """No recipe: look at the data and choose."""
    source = args.recipe or args.data
    if not source:
        raise RecipeError("Name a recipe or a data file: python -m trainer fit FILE.")
    body: dict[str, Any] = {"name": name_of(source), "data": {"source": source}}
    if args.recipe and args.data:
        body["data"]["path"] = args.data
    if args.name:
        body["name"] = args.name
    asked = make_recipe(with_settings(body, args.settings))
    chosen = default_recipe(asked.name, load(asked.data, None))
    return make_recipe(with_settings({**chosen, "data": body["data"]}, args.settings))


def _publish(recipe: Recipe, prepared: Prepared, ae: AutoEncoder, run: Run, models: Path) -> None:
    """Pictures, artefact, figures, and where they are."""
    say(f"{run.folder} keeps what was learnt (python -m trainer export {run.folder}); "
        "drawing pictures and exporting ...")  # fmt: skip
    losses = checkpoint.load(run.checkpoint)[0].losses
    chains = make_chains(recipe, prepared, ae)
    pictures = draw_gallery(recipe, prepared, ae, chains, losses, run.folder)
    folder = _export(recipe, prepared, ae, chains, models, pictures)
    say(f"{folder} is ready: {folder / CARD} shows what it learnt, "
        f"{run.folder} keeps the run.")  # fmt: skip


def _export(
    recipe: Recipe, prepared: Prepared, ae: AutoEncoder, chains: Chains, models: Path,
    pictures: list[Path],
) -> Path:  # fmt: skip
    """A new version of the model, with the figures that take seconds."""

    def look(folder: Path) -> Manifest:
        model = Model.open(folder)
        rows = held_out_rows(prepared, VALIDATION_ROWS).numpy()
        typical = typical_quantiles(model, rows, model.manifest.moments_sigma)
        held = held_rows(prepared.dataset, prepared.split)
        figures = first_look(model, prepared.dataset, held)
        return replace(model.manifest, typical=typical, evaluation=figures)

    return export(recipe, prepared, ae, chains, models, pictures, look)


def export_command(args: argparse.Namespace) -> None:
    """An artefact from a run that was trained before, or from another artefact."""
    if (Path(args.run) / MANIFEST).exists():
        return _export_again(Path(args.run), args.data, args.models)
    run = Run(Path(args.run))
    recipe = run.recipe()
    if not run.checkpoint.exists():
        raise RunFolderError(f"{run.folder} has no checkpoint yet; finish it with "
                             f"python -m trainer fit --resume {run.folder}.")  # fmt: skip
    prepared = prepare(recipe, run.folder / STAGING)
    state, groups = reached(run, prepared)
    if not state.finished:
        if recipe.criterion.stacked:
            raise RunFolderError(f"{run.folder} has layers still to train; finish it with "
                                 f"python -m trainer fit --resume {run.folder}.")  # fmt: skip
        say(f"Note: {run.folder} is not finished; exporting its best weights so far.")
    ae = AutoEncoder(prepared.architecture)
    load_weights(ae, groups["model"] if state.finished else groups["best"], run)
    _publish(recipe, prepared, ae.eval(), run, args.models)


def _export_again(artefact: Path, data: str | None, models: Path) -> None:
    """The weights of an artefact with the graphs of this release, as a new version."""
    manifest = Model.open(artefact).manifest
    options = data_options(manifest.recipe["data"], data)
    recipe = make_recipe({**manifest.recipe, "data": asdict(options)})
    prepared = prepare(recipe)
    if prepared.dataset.fingerprint != manifest.data["fingerprint"]:
        raise ArtefactError(f"{artefact} was trained on other data than {prepared.dataset.name}.")
    check_writable(models, recipe.name)
    ae = AutoEncoder(prepared.architecture)
    weights = load_file(artefact / WEIGHTS)
    ae.load_state_dict({k: v for k, v in weights.items() if k != START_POINTS})
    chains = make_chains(recipe, prepared, ae.eval())
    with tempfile.TemporaryDirectory() as temporary:
        pictures = draw_gallery(recipe, prepared, ae, chains, (), Path(temporary))
        curves = artefact / "losses.png"  # of the training, which is not repeated
        pictures += [curves] if curves.exists() else []
        folder = _export(recipe, prepared, ae, chains, models, pictures)
    say(f"{folder} is ready: the weights of {artefact}, exported again.")


def evaluate_command(args: argparse.Namespace) -> None:
    """Figures and pictures into an artefact that is already there."""
    evaluate_artefact(args, find_artefact(args.artefact, args.models))


def find_artefact(reference: str, models: Path) -> Path:
    """A model's folder from a path, a name, or name@version."""
    if (Path(reference) / MANIFEST).exists():
        return Path(reference)
    name, _, version = reference.partition("@")
    base = models / name
    versions = sorted((p.name for p in base.glob("*") if p.name.isdecimal()), key=int)
    if not versions or (version and version not in versions):
        raise ArtefactError(
            f"There is no model {reference} in {models}, nor a folder of that name."
        )
    return base / (version or versions[-1])


def data_command(args: argparse.Namespace) -> None:
    """Say what a data set looks like and what would be chosen for it."""
    body = {"source": args.source} | ({"path": args.data} if args.data else {})
    recipe = make_recipe(with_settings({"name": "data", "data": body}, args.settings))
    dataset = load(recipe.data, None)
    parts = split(dataset, recipe.data)
    print(describe(dataset, inspect_rows(dataset, recipe.data, parts.train)))
