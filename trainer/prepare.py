"""From a recipe and its data to what a run needs: rows, normaliser, architecture, criterion."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from localmoments.columns import Normaliser
from trainer.autoencoder import Architecture
from trainer.config import Recipe
from trainer.covariance_roots import check_exact_root, check_few
from trainer.criteria import Criterion
from trainer.data import Dataset, Inspection, Split, inspect_rows, load, split
from trainer.errors import RecipeError


@dataclass(frozen=True)
class Prepared:
    """Data that was looked at, and the model that fits it."""

    dataset: Dataset
    split: Split
    inspection: Inspection
    normaliser: Normaliser
    architecture: Architecture
    criterion: Criterion


def prepare(recipe: Recipe, staging: Path | None = None) -> Prepared:
    """Load, split and examine the data, and check the recipe against it."""
    dataset = load(recipe.data, staging)
    wanted = recipe.model.dims
    if wanted is not None and wanted != dataset.dims:
        raise RecipeError(f"{dataset.name} has {dataset.dims} columns, but the recipe's model.dims "
                          f"asks for {wanted}.")  # fmt: skip
    parts = split(dataset, recipe.data)
    return fitted(recipe, dataset, parts, inspect_rows(dataset, recipe.data, parts.train))


def fitted(recipe: Recipe, dataset: Dataset, parts: Split, seen: Inspection) -> Prepared:
    """The architecture and criterion for data that was examined."""
    m, c = recipe.model, recipe.criterion
    decoder = seen.decoder if m.decoder == "auto" else m.decoder
    normaliser = Normaliser(seen.shift, seen.scale)
    if decoder == "sigmoid":
        _check_within_unit_interval(normaliser, seen)
    if c.loss == "cross-entropy" and decoder != "sigmoid":
        raise RecipeError("criterion.loss = cross-entropy is for data in [0, 1], which this is "
                          "not; use squared, or --set data.normalise=unit.")  # fmt: skip
    architecture = Architecture(
        dataset.dims, m.hidden, m.unit, decoder, m.tied, m.blocks, m.conditioned
    )
    if recipe.sampling.root == "exact":
        check_exact_root(architecture)
    if recipe.sampling.root == "matrix":
        check_few(architecture)
    criterion = Criterion(
        c.kind, c.loss, c.alpha, c.levels, c.corruption, c.amount, c.walkback, c.probes,
        c.hidden_levels, c.hidden_floor, c.hidden_return, c.input_noise,
    )  # fmt: skip
    return Prepared(dataset, parts, seen, normaliser, architecture, criterion)


def _check_within_unit_interval(normaliser: Normaliser, seen: Inspection) -> None:
    low = ((seen.minimum - normaliser.shift) / normaliser.scale).min()
    high = ((seen.maximum - normaliser.shift) / normaliser.scale).max()
    if low < -1e-6 or high > 1 + 1e-6:
        raise RecipeError(f"model.decoder = sigmoid cannot give values from {low:.4g} to "
                          f"{high:.4g}; use linear, or --set data.normalise=unit.")  # fmt: skip


def held_out_rows(prepared: Prepared, count: int) -> Tensor:
    """Rows the model never saw, in its own units, spread evenly over all that were held out
    (neighbours are often alike, as frames of a film are); (n, d)."""
    held_out = prepared.split.validation
    n = min(count, len(held_out))
    index = held_out[np.arange(n) * len(held_out) // n]
    return torch.from_numpy(prepared.normaliser.to_model(prepared.dataset.source.take(index)))
