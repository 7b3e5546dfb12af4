"""Images a second of `fit`, with all it does beside the steps, against the bare loop."""

from collections.abc import Callable, Iterator
from pathlib import Path

import plain
import torch
from interleave import Figure, interleaved, ratios, seconds

from trainer.batches import MemoryFeed, make_feed
from trainer.config import Recipe
from trainer.fit import VALIDATION_ROWS, fit
from trainer.prepare import Prepared, held_out_rows, prepare
from trainer.run_folder import new_run

BATCH = 128


def against_bare_loop(
    recipe: Recipe, problem: Callable[[], plain.Problem], folder: Path, rounds: int
) -> Iterator[Figure]:
    prepared, name = prepare(recipe), recipe.name
    rows, epochs = fed(recipe, prepared).rows, recipe.training.epochs
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
    reading = seconds(lambda: (fed(recipe, prepared), held_out_rows(prepared, VALIDATION_ROWS)))
    run = new_run(folder, recipe)
    return seconds(lambda: fit(recipe, prepared, run)) - reading


def fed(recipe: Recipe, prepared: Prepared) -> MemoryFeed:
    """The training rows, read as `fit` reads them."""
    feed = make_feed(
        prepared.dataset.source, prepared.split.train, prepared.normaliser,
        batch=BATCH, seed=0, memory_limit=recipe.data.memory_limit,
    )  # fmt: skip
    if not isinstance(feed, MemoryFeed):
        raise SystemExit("the bare loop needs data that fits into memory")
    return feed
