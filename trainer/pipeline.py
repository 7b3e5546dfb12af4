"""From a recipe and its data to an artefact: train, draw the plots, export, measure."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from safetensors.torch import load_file

from localmoments.artefact import START_POINTS, WEIGHTS, Manifest
from localmoments.errors import ArtefactError
from localmoments.model import Model
from trainer import checkpoint
from trainer.atomic_files import replace_file
from trainer.autoencoder import AutoEncoder
from trainer.checkpoint import Loss
from trainer.config import Recipe, make_recipe
from trainer.errors import RunFolderError, explain_write_errors
from trainer.evaluate import first_look, held_rows
from trainer.evaluate.command import data_options
from trainer.evaluate.trust import typical_quantiles
from trainer.export import CARD, ChainSetup, export, set_up_chains
from trainer.fit import VALIDATION_ROWS, fit, load_weights, read_checkpoint
from trainer.plots.artefact import draw_fit_plots
from trainer.prepare import PreparedData, held_out_rows, prepare
from trainer.run_folder import RunFolder, check_writable


def log(text: str) -> None:
    """Print a line about progress."""
    print(text, file=sys.stderr, flush=True)


def train_and_export(recipe: Recipe, prepared: PreparedData, run: RunFolder, models: Path) -> Path:
    """Train to the end, from the run's checkpoint if there is one, and export the model.

    Returns:
        The folder of the new artefact, `models/<name>/<version>`.
    """
    for note in (*prepared.dataset.notes, *prepared.inspection.notes):
        log(f"Note: {note}")
    log(
        f"Training {recipe.name} on {len(prepared.split.train):,} rows with "
        f"{prepared.dataset.dims} columns; the run is in {run.path}."
    )
    ae = fit(recipe, prepared, run)
    return _export_run(recipe, prepared, ae, run, models)


def export_run(recipe: Recipe, run: RunFolder, models: Path) -> Path:
    """Export the weights of a run: the final ones, or the best so far if it has not finished.

    Raises:
        RunFolderError: if the run has no checkpoint, or layers that are not trained yet.
    """
    resume = f"finish it with localmoments fit --resume {run.path}."
    if not run.checkpoint.exists():
        raise RunFolderError(f"{run.path} has no checkpoint yet; {resume}")
    prepared = prepare(recipe, staging=run.staging)
    state, groups = read_checkpoint(run, prepared)
    if not state.finished:
        if recipe.criterion.stacked:
            raise RunFolderError(f"{run.path} has layers that are not trained yet; {resume}")
        log(f"Note: {run.path} has not finished; exporting its best weights so far.")
    ae = AutoEncoder(prepared.architecture)
    load_weights(ae, groups["model"] if state.finished else groups["best"], run)
    return _export_run(recipe, prepared, ae.eval(), run, models)


def export_artefact(artefact: Path, data: str | None, models: Path) -> Path:
    """Export the weights of an artefact with the graphs of this release, as a new version.

    Args:
        artefact: the folder of the artefact.
        data: its training data, if that has moved.
        models: where to write the new version.

    Raises:
        ArtefactError: if the data is not the one that the model was trained on.
    """
    manifest = Model.open(artefact).manifest
    options = data_options(manifest.recipe["data"], data)
    recipe = make_recipe({**manifest.recipe, "data": asdict(options)})
    prepared = prepare(recipe)
    if prepared.dataset.fingerprint != manifest.data["fingerprint"]:
        raise ArtefactError(f"{artefact} was not trained on {prepared.dataset.name}.")
    check_writable(models, recipe.name)
    ae = AutoEncoder(prepared.architecture)
    weights = load_file(artefact / WEIGHTS)
    ae.load_state_dict({k: v for k, v in weights.items() if k != START_POINTS})
    chains = set_up_chains(recipe, prepared, ae.eval())
    curves = artefact / "losses.png"  # of the training, which is not repeated
    folder = _export(recipe, prepared, ae, chains, models, (), curves)
    log(f"{folder} is ready: it has the weights of {artefact}.")
    return folder


def _export_run(
    recipe: Recipe, prepared: PreparedData, ae: AutoEncoder, run: RunFolder, models: Path
) -> Path:
    """Export a trained model, and copy its plots into the run."""
    log(f"Training is complete and saved in {run.path}; exporting and drawing plots ...")
    losses = checkpoint.load(run.checkpoint)[0].losses
    chains = set_up_chains(recipe, prepared, ae)
    folder = _export(recipe, prepared, ae, chains, models, losses)
    try:
        with explain_write_errors(run.path):
            for plot in folder.glob("*.png"):
                with replace_file(run.path / plot.name) as temporary:
                    shutil.copyfile(plot, temporary)
    except RunFolderError as error:  # the artefact is complete, so this is not a failure
        log(f"Note: the plots are only in {folder}: {error}")
    log(f"{folder} is ready; {folder / CARD} describes it.")
    return folder


def _export(
    recipe: Recipe,
    prepared: PreparedData,
    ae: AutoEncoder,
    chains: ChainSetup,
    models: Path,
    losses: Sequence[Loss],
    curves: Path | None = None,
) -> Path:
    """Export a new version with its plots and the figures that take only seconds.

    Args:
        losses: of the training, for their plot.
        curves: an existing plot of the losses, to copy.
    """

    def complete(folder: Path) -> Manifest:
        model = Model.open(folder)
        draw_fit_plots(model, prepared, losses, folder)
        if curves is not None and curves.exists():
            shutil.copyfile(curves, folder / curves.name)
        rows = held_out_rows(prepared, VALIDATION_ROWS).numpy()
        typical = typical_quantiles(model, rows, model.manifest.moments_sigma)
        held = held_rows(prepared.dataset, prepared.split)
        figures = first_look(model, prepared.dataset, held)
        return replace(model.manifest, typical=typical, evaluation=figures)

    return export(recipe, prepared, ae, chains, models, complete)
