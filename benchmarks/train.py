"""Measure the speed of `fit` against a bare PyTorch loop, and the cost of its parts.

    python benchmarks/train.py [--data PATH] [--rounds 5] [--threads 1] [--large-gb 6 --tmp DIR]

Results go to benchmarks/results/train.json and train.png (`make training`).
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bare_loop
import memory
import numpy as np
import report
import torch
from measure import Figure, alternate, describe_machine, divide, time_call
from torch import Tensor
from torch.nn import functional as F

from trainer.autoencoder import AutoEncoder
from trainer.batches import MemoryFeed, make_feed
from trainer.config import Recipe, make_recipe
from trainer.data.known_sets import locate_file
from trainer.errors import DataError
from trainer.fit import VALIDATION_ROWS, fit, new_model
from trainer.prepare import PreparedData, held_out_rows, prepare
from trainer.run_folder import new_run

RESULTS = Path(__file__).parent / "results"
BATCH = 128
CALLS = 40  # of each part in a round
JVP_ROWS = 64
DEEP_DAE = {
    "model": {"hidden": [1000, 1000], "unit": "silu"},
    "criterion": {"kind": "dae", "loss": "squared", "sigma": bare_loop.SIGMA},
}
TIED_CAE = {
    "model": {"hidden": [1000], "unit": "sigmoid", "tied": True},
    "criterion": {"kind": "cae", "loss": "cross-entropy", "alpha": bare_loop.ALPHA},
}


def main() -> None:
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(dir=args.tmp, prefix="bench-train-") as folder:
        data, label = choose_data(args.data, Path(folder))
        figures = list(measure(args, data, Path(folder)))
    body = {"data": label, "epochs": args.epochs, "machine": describe_machine(),
            "figures": [figure.to_dict() for figure in figures]}  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "train.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    title = f"Training on {label}, {describe_machine()['cpu']}"
    report.draw_bars(figures, RESULTS / "train.png", title)
    print(report.format_table(figures))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure training against a bare PyTorch loop.")
    parser.add_argument("--data", help="MNIST's file or its folder (default: $LOCALMOMENTS_DATA)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1, help="of the DAE; the CAE has twice that")
    parser.add_argument("--threads", type=int, help="1 gives steadier ratios on a busy machine")
    parser.add_argument("--large-gb", type=float, help="also train on an .npy of this size")
    parser.add_argument("--tmp", type=Path, help="folder for large temporary files")
    return parser.parse_args()


def choose_data(path: str | None, folder: Path) -> tuple[dict[str, Any], str]:
    """Return the [data] table of the recipes and a label: MNIST, or random pictures without it."""
    try:
        file = locate_file("mnist", path)
        if not file.is_file():
            raise DataError(f"There is no file at {file}.")
        return {"source": "mnist", "path": str(file)}, "MNIST"
    except DataError as error:
        print(f"{error} Random pictures of the same size are used instead.")
    images = np.random.default_rng(0).integers(0, 256, (60_000, 28, 28), dtype=np.uint8)
    np.save(folder / "random.npy", images)
    return {"source": str(folder / "random.npy"), "holdout": 10_000}, "random 28×28 pictures"


def measure(args: argparse.Namespace, data: dict[str, Any], folder: Path) -> Iterator[Figure]:
    """Measure all figures."""
    # `fit` would choose the number of threads itself; both sides must have the same.
    training = {"epochs": args.epochs, "batch": BATCH, "threads": torch.get_num_threads()}
    longer = training | {"epochs": 2 * args.epochs}
    dae = make_recipe({"name": "deep-dae", "data": data, **DEEP_DAE, "training": training})
    cae = make_recipe({"name": "tied-cae", "data": data, **TIED_CAE, "training": longer})
    yield from compare_with_bare_loop(dae, bare_loop.make_deep_dae, folder, args.rounds)
    yield from compare_with_bare_loop(cae, bare_loop.make_tied_cae, folder, args.rounds)
    yield from measure_penalty(cae, args.rounds)
    yield from measure_jacobian_product(dae, args.rounds)
    if args.large_gb:
        peak = memory.measure_large_fit(args.large_gb, args.tmp)
        yield Figure(f"peak memory, {args.large_gb:g} GB .npy", "GB", (peak,), at_most=2.0)


def compare_with_bare_loop(
    recipe: Recipe, make_problem: Callable[[], bare_loop.Problem], folder: Path, rounds: int
) -> Iterator[Figure]:
    """Images per second of `fit`, with validation and checkpoints, and of the bare loop."""
    prepared, name = prepare(recipe), recipe.name
    rows, epochs = load_feed(recipe, prepared).rows, recipe.training.epochs
    images = len(rows) * epochs

    def measure_fit() -> float:
        return images / time_fit(recipe, prepared, folder)

    def measure_bare() -> float:
        torch.use_deterministic_algorithms(False)  # the default; `fit` turns it on
        return images / bare_loop.train(make_problem(), rows, BATCH, epochs)

    bare_loop.train(make_problem(), rows[: 20 * BATCH], BATCH, 1)  # starts threads, fills caches
    ours, bare = alternate(measure_fit, measure_bare, rounds)
    yield Figure(f"fit, {name}", "images/s", tuple(ours))
    yield Figure(f"bare loop, {name}", "images/s", tuple(bare))
    yield Figure(f"fit / bare loop, {name}", "×", divide(ours, bare), at_least=0.9)


def time_fit(recipe: Recipe, prepared: PreparedData, folder: Path) -> float:
    """Return the seconds of `fit` from the first step to the last checkpoint, without reading."""
    reading = time_call(
        lambda: (load_feed(recipe, prepared), held_out_rows(prepared, VALIDATION_ROWS))
    )
    run = new_run(folder, recipe)
    return time_call(lambda: fit(recipe, prepared, run)) - reading


def load_feed(recipe: Recipe, prepared: PreparedData) -> MemoryFeed:
    """Read the training rows as `fit` does."""
    feed = make_feed(
        prepared.dataset.source, prepared.split.train, prepared.normaliser,
        batch=BATCH, seed=0, memory_limit=recipe.data.memory_limit,
    )  # fmt: skip
    if not isinstance(feed, MemoryFeed):
        raise SystemExit("The data must fit into memory for the bare loop.")
    return feed


def measure_penalty(recipe: Recipe, rounds: int) -> Iterator[Figure]:
    """A training step with the exact one-layer contraction penalty, and one without it."""
    prepared = prepare(recipe)
    x, model, generator = held_out_rows(prepared, BATCH), new_model(prepared, 0), torch.Generator()

    def compute_plain_loss() -> Tensor:
        logits = model.decode_logits(model.encode(x))
        return F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()

    contractive = make_step(model, lambda: prepared.criterion(model, x, generator))
    a, b = time_in_turn(contractive, make_step(model, compute_plain_loss), rounds)
    yield Figure("step of the contractive auto-encoder", "ms", a)
    yield Figure("step without its penalty", "ms", b)
    yield Figure("contractive step / plain step", "×", divide(a, b), at_most=1.6)


def measure_jacobian_product(recipe: Recipe, rounds: int) -> Iterator[Figure]:
    """J v of the deep model by our forward operations, and by torch.func.jvp."""
    prepared = prepare(recipe)
    x, model = held_out_rows(prepared, JVP_ROWS), new_model(prepared, 0)
    v = torch.randn_like(x)
    with torch.no_grad():
        a, b = time_in_turn(
            lambda: model.linearise(x).jvp(v), lambda: torch.func.jvp(model, (x,), (v,)), rounds
        )
    yield Figure(f"J v, hand-written, batch {JVP_ROWS}", "ms", a)
    yield Figure(f"J v, torch.func.jvp, batch {JVP_ROWS}", "ms", b)
    yield Figure("torch.func.jvp / hand-written", "×", divide(b, a))


def make_step(model: AutoEncoder, compute_loss: Callable[[], Tensor]) -> Callable[[], object]:
    """Return a training step: forward, backward and Adam, with an Adam of its own."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        adam.zero_grad()
        compute_loss().backward()
        adam.step()

    return step


def time_in_turn(
    a: Callable[[], object], b: Callable[[], object], rounds: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the ms per call of a and b; short calls get four times as many rounds."""
    torch.use_deterministic_algorithms(False)  # `fit` turns it on
    time_call(a, CALLS)
    time_call(b, CALLS)
    times_a, times_b = alternate(
        lambda: 1e3 * time_call(a, CALLS), lambda: 1e3 * time_call(b, CALLS), 4 * rounds
    )
    return tuple(times_a), tuple(times_b)


if __name__ == "__main__":
    main()
