"""What a run needs, from a recipe and its data: rows, normaliser, architecture and criterion."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from localmoments.columns import Normaliser
from trainer.autoencoder import Architecture
from trainer.config import Recipe
from trainer.covariance_roots import check_exact_root, check_matrix_root
from trainer.criteria import Criterion
from trainer.data import Dataset, Inspection, Split, inspect_rows, load, split
from trainer.data.split import spread
from trainer.errors import RecipeError


@dataclass(frozen=True)
class Prepared:
    """A data set with its statistics, and the model and criterion for it."""

    dataset: Dataset
    split: Split
    inspection: Inspection
    normaliser: Normaliser
    architecture: Architecture
    criterion: Criterion


def prepare(
    recipe: Recipe, dataset: Dataset | None = None, staging: Path | None = None
) -> Prepared:
    """Split and inspect the data, and check the recipe against it.

    Args:
        recipe: the recipe.
        dataset: its data, if that was read already.
        staging: where to convert data that is larger than memory, if it is read here.

    Raises:
        DataError: if the data cannot be read or learned from.
        RecipeError: if the recipe does not fit the data.
    """
    if dataset is None:
        dataset = load(recipe.data, staging)
    dims = recipe.model.dims
    if dims is not None and dims != dataset.dims:
        raise RecipeError(f"{dataset.name} has {dataset.dims} columns, but the recipe has "
                          f"model.dims = {dims}.")  # fmt: skip
    parts = split(dataset, recipe.data)
    inspection = inspect_rows(dataset, recipe.data, parts.train)
    normaliser = Normaliser(inspection.shift, inspection.scale)
    architecture = choose_architecture(recipe, dataset.dims, inspection)
    if architecture.decoder == "sigmoid":
        _check_unit_interval(normaliser, inspection)
    c = recipe.criterion
    criterion = Criterion(
        c.kind, c.loss, c.alpha, c.levels, c.corruption, c.amount, c.walkback, c.probes,
        c.hidden_levels, c.hidden_floor, c.hidden_return, c.input_noise,
    )  # fmt: skip
    return Prepared(dataset, parts, inspection, normaliser, architecture, criterion)


def choose_architecture(recipe: Recipe, dims: int, inspection: Inspection) -> Architecture:
    """The architecture for data with these statistics.

    Raises:
        RecipeError: if the loss or the covariance root does not fit the architecture.
    """
    m = recipe.model
    decoder = inspection.decoder if m.decoder == "auto" else m.decoder
    if recipe.criterion.loss == "cross-entropy" and decoder != "sigmoid":
        raise RecipeError("criterion.loss = cross-entropy requires data in [0, 1]; use squared, "
                          "or --set data.normalise=unit.")  # fmt: skip
    architecture = Architecture(dims, m.hidden, m.unit, decoder, m.tied, m.blocks, m.conditioned)
    if recipe.sampling.root == "exact":
        check_exact_root(architecture)
    if recipe.sampling.root == "matrix":
        check_matrix_root(architecture)
    return architecture


def _check_unit_interval(normaliser: Normaliser, inspection: Inspection) -> None:
    low = ((inspection.minimum - normaliser.shift) / normaliser.scale).min()
    high = ((inspection.maximum - normaliser.shift) / normaliser.scale).max()
    if low < -1e-6 or high > 1 + 1e-6:
        raise RecipeError(f"model.decoder = sigmoid cannot produce values from {low:.4g} to "
                          f"{high:.4g}; use linear, or --set data.normalise=unit.")  # fmt: skip


def held_out_rows(prepared: Prepared, count: int) -> Tensor:
    """Rows that the model is not trained on, in its own units; (n, d).

    They are spread evenly over all held-out rows, because neighbouring rows are often alike, as the
    frames of a film are.
    """
    index = spread(prepared.split.validation, count)
    return torch.from_numpy(prepared.normaliser.to_model(prepared.dataset.source.take(index)))
