"""Which plots an artefact has: those that `fit` draws, and those that `evaluate` adds.

Both run the exported model. `samples.png` is drawn in the same way by both: chains of the default
kernel that start from noise, after the burn-in of the evaluation.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from localmoments.artefact import WEIGHTS
from localmoments.chain import make_transition
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.checkpoint import Loss
from trainer.data import Dataset, Split
from trainer.errors import explain_write_errors
from trainer.evaluate import Evaluation, budget_for
from trainer.evaluate.chains import draw_chains
from trainer.evaluate.context import with_scales
from trainer.plots.curves import (
    draw_bandwidths,
    draw_classes,
    draw_distances,
    draw_losses,
    draw_mixing,
)
from trainer.plots.local import draw_filters, draw_reconstructions, draw_tangents
from trainer.plots.samples import draw_neighbours, draw_samples
from trainer.plots.view import Float, View, view_of
from trainer.prepare import PreparedData, held_out_rows

WALKERS, SCATTERED = 10, 500  # chains shown as images, and over the points of a table
KEPT, THIN = 20, 5  # steps shown of each chain, and the steps between two of them
IMAGES, ARROWS = 30, 200  # reconstructions of images, and of a table's rows
TANGENT_IMAGES, SEGMENTS = 8, 300  # points with tangents: images, and a table's rows
TANGENTS = 8  # of each point
EVALUATION_PLOTS = ("samples", "classes", "bandwidths", "mixing", "distances", "neighbours")


def draw_fit_plots(
    model: Model, prepared: PreparedData, losses: Sequence[Loss], folder: Path
) -> None:
    """Draw samples, reconstructions, tangents, filters and losses of a new artefact.

    Args:
        losses: of the training; there is no plot of them if there are none.
        folder: where the PNG files are written.
    """
    view = view_of(prepared.dataset, prepared.split)

    def path(name: str) -> Path:
        return folder / f"{name}.png"

    with explain_write_errors(folder):
        chains = _draw_sample_chains(model, view)
        if chains is not None:
            draw_samples(view, chains, path("samples"), _samples_title(model))
        _draw_held_out(model, prepared, view, path("reconstructions"))
        _draw_tangents_at_rows(model, prepared, view, path("tangents"))
        if view.image is not None:
            with safe_open(model.folder / WEIGHTS, framework="numpy") as weights:
                draw_filters(view, weights.get_tensor("encoder.0.weight"), path("filters"))
        if losses:
            draw_losses(losses, path("losses"), model.manifest.name)


def _samples_title(model: Model) -> str:
    m = model.manifest
    return f"{m.name}, kernel {m.default_kernel}, every {THIN}th step"


def _draw_sample_chains(model: Model, view: View) -> Float | None:
    """What walkers from noise emit after the burn-in, in the user's units; (KEPT, W, d).

    None if they diverge.
    """
    m = model.manifest
    walkers = WALKERS if view.image is not None else SCATTERED
    burn_in = budget_for(m.input_dims).burn_in
    keep = range(burn_in + THIN, burn_in + KEPT * THIN + 1, THIN)
    transition = make_transition(model, seed=1)
    try:
        samples = draw_chains(model, transition, walkers, keep[-1], keep, m.normaliser)
    except DivergedError:
        return None
    return np.asarray(m.normaliser.to_user(samples.emitted(m.default_emit)), np.float64)


def _draw_held_out(model: Model, prepared: PreparedData, view: View, path: Path) -> None:
    """Reconstructions of held-out rows, corrupted as in training."""
    z = held_out_rows(prepared, IMAGES if view.image is not None else ARROWS)
    noisy = z
    if prepared.criterion.kind == "dae":
        generator = torch.Generator().manual_seed(1)
        sigma = torch.full((len(z), 1), model.manifest.sigma)
        noisy = prepared.criterion.corrupt(z, sigma, generator)
    r = model.run("reconstruct", x=noisy.numpy(), **model.noise_level(len(z)))["mean"]
    x, given, returned = (
        np.asarray(prepared.normaliser.to_user(part), np.float64)
        for part in (z.numpy(), noisy.numpy(), r)
    )
    draw_reconstructions(view, x, given, returned, path)


def _draw_tangents_at_rows(model: Model, prepared: PreparedData, view: View, path: Path) -> None:
    z = held_out_rows(prepared, TANGENT_IMAGES if view.image is not None else SEGMENTS)
    x = np.asarray(prepared.normaliser.to_user(z.numpy()), np.float64)
    rank = min(TANGENTS, model.dims)
    local = model.moments(x, rank=rank, include=["tangents"])
    assert local.tangents is not None and local.eigenvalues is not None
    draw_tangents(view, x, local.tangents, local.eigenvalues, path)


def draw_evaluation_plots(
    model: Model, dataset: Dataset, split: Split, evaluation: Evaluation, folder: Path
) -> list[Path]:
    """Draw those of EVALUATION_PLOTS that the figures allow; return the paths.

    Plots are in the user's units, but for pixels, which are shown in [0, 1].
    """
    paths = []

    def path(name: str) -> Path:
        paths.append(folder / f"{name}.png")
        return paths[-1]

    if not evaluation.sets:  # its chains diverge
        return []
    model, view = with_scales(model, evaluation.scales), view_of(dataset, split)
    chains = _draw_sample_chains(model, view)
    if chains is not None:  # other seeds than those of the figures may diverge
        draw_samples(view, chains, path("samples"), _samples_title(model))
    if evaluation.class_names:
        draw_classes(_class_shares(evaluation), evaluation.class_names, path("classes"), "Classes")
    curves = {name: x.parzen.curve for name, x in evaluation.sets.items() if x.parzen}
    if curves:
        draw_bandwidths(curves, path("bandwidths"))
    if evaluation.correlation is not None:
        draw_mixing(evaluation.correlation, evaluation.scalar_names, evaluation.settling,
                    path("mixing"))  # fmt: skip
    if evaluation.distances is not None:
        samples, real = (x.distance.astype(np.float64) for x in evaluation.distances)
        draw_distances({"held-out rows": real, "samples": samples}, path("distances"))
    if evaluation.copies is not None and view.image is not None:
        samples, real = (x.astype(np.float64) for x in evaluation.copies)
        pixels = View(view.image, None, 0.0, 1.0, real)
        draw_neighbours(pixels, samples, real, path("neighbours"))
    return paths


def _class_shares(evaluation: Evaluation) -> dict[str, Float]:
    """Shares of the classes in the samples of many chains and of few, and in real rows."""
    return {
        name: x.classes
        for name, x in evaluation.sets.items()
        if x.classes is not None and name.endswith(("mean", "rows"))
    }
