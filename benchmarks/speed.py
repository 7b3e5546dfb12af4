"""Images a second of `fit`, with all it does beside the steps, against the bare loop."""

from collections.abc import Callable, Iterator
from pathlib import Path

import plain
import torch
from interleave import Figure, interleaved, ratios, seconds
from torch import Tensor

from trainer.config import Recipe
from trainer.fit import VALIDATION_ROWS, fit
from trainer.prepare import Prepared, held_out_rows, prepare
from trainer.run import new_run

BATCH = 128


def against_bare_loop(
    recipe: Recipe, problem: Callable[[], plain.Problem], folder: Path, rounds: int
) -> Iterator[Figure]:
    prepared, name = prepare(recipe), recipe.name
    rows, epochs = training_rows(prepared), recipe.training.epochs
    seen = len(rows) * epochs

    def ours() -> float:
        return seen / fit_seconds(recipe, prepared, folder)

    def bare() -> float:
        torch.use_deterministic_algorithms(False)  # as a notebook has it; `fit` turns it on
        return seen / plain.train(problem(), rows, BATCH, epochs)

    plain.train(problem(), rows[: 20 * BATCH], BATCH, 1)  # starts threads and fills caches
    fitted, bared = interleaved(ours, bare, rounds)
    yield Figure(f"fit, {name}", "images/s", tuple(fitted))
    yield Figure(f"bare loop, {name}", "images/s", tuple(bared))
    yield Figure(f"fit / bare loop, {name}", "×", ratios(fitted, bared), at_least=0.9)


def fit_seconds(recipe: Recipe, prepared: Prepared, folder: Path) -> float:
    """`fit` from its first step to its last checkpoint: all of it but the reading of the data."""
    reading = seconds(lambda: (training_rows(prepared), held_out_rows(prepared, VALIDATION_ROWS)))
    run = new_run(folder, recipe)
    return seconds(lambda: fit(recipe, prepared, run)) - reading


def training_rows(prepared: Prepared) -> Tensor:
    """In the model's units, as `fit` holds them; (n, d)."""
    rows = prepared.dataset.source.take(prepared.split.train)
    return torch.from_numpy(prepared.normaliser.to_model(rows))
