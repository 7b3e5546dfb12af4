"""How fast `fit` is against a bare PyTorch loop, and what its parts cost (`make training`).

    python benchmarks/train.py [--data PATH] [--rounds 5] [--threads 1] [--large-gb 6 --tmp DIR]

The figures go to benchmarks/results/train.json and train.png, with the machine they are from.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import costs
import memory
import numpy as np
import plain
import report
import speed
import torch
from interleave import Figure
from machine import machine

from trainer.config import make_recipe
from trainer.data.known_sets import locate_file
from trainer.errors import DataError

RESULTS = Path(__file__).parent / "results"
DEEP_DAE = {
    "model": {"hidden": [1000, 1000], "unit": "silu"},
    "criterion": {"kind": "dae", "loss": "squared", "sigma": plain.SIGMA},
}
TIED_CAE = {
    "model": {"hidden": [1000], "unit": "sigmoid", "tied": True},
    "criterion": {"kind": "cae", "loss": "cross-entropy", "alpha": plain.ALPHA},
}


def main() -> None:
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(dir=args.tmp, prefix="bench-train-") as folder:
        data, words = pictures(args.data, Path(folder))
        figures = list(measured(args, data, Path(folder)))
    body = {"data": words, "epochs": args.epochs, "machine": machine(),
            "figures": [figure.as_dict() for figure in figures]}  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "train.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    report.draw(figures, RESULTS / "train.png", f"Training on {words}, {machine()['cpu']}")
    print(report.table(figures))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure training against a bare PyTorch loop.")
    parser.add_argument("--data", help="MNIST's file or its folder (default: $LOCALMOMENTS_DATA)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--epochs", type=int, default=1, help="of the DAE; the CAE has twice as many"
    )
    parser.add_argument("--threads", type=int, help="1 gives steadier ratios on a busy machine")
    parser.add_argument("--large-gb", type=float, help="also train on an .npy of this size")
    parser.add_argument("--tmp", type=Path, help="where large temporary files may be written")
    return parser.parse_args()


def pictures(path: str | None, folder: Path) -> tuple[dict[str, Any], str]:
    """The [data] table of the recipes, and what the data is called."""
    try:
        file = locate_file("mnist", path)
        if not file.is_file():
            raise DataError(f"There is no file at {file}.")
        return {"source": "mnist", "path": str(file)}, "MNIST"
    except DataError as error:
        print(f"{error} Random pictures of the same size are used instead.")
    made = np.random.default_rng(0).integers(0, 256, (60_000, 28, 28), dtype=np.uint8)
    np.save(folder / "random.npy", made)
    return {"source": str(folder / "random.npy"), "holdout": 10_000}, "random 28×28 pictures"


def measured(args: argparse.Namespace, data: dict[str, Any], folder: Path) -> Iterator[Figure]:
    """Every figure, one after the other."""
    cores = torch.get_num_threads()  # said to `fit`, which else chooses for itself
    training = {"epochs": args.epochs, "batch": speed.BATCH, "threads": cores}
    twice = training | {"epochs": 2 * args.epochs}
    dae = make_recipe({"name": "deep-dae", "data": data, **DEEP_DAE, "training": training})
    cae = make_recipe({"name": "tied-cae", "data": data, **TIED_CAE, "training": twice})
    yield from speed.against_bare_loop(dae, plain.deep_dae, folder, args.rounds)
    yield from speed.against_bare_loop(cae, plain.tied_cae, folder, args.rounds)
    yield from costs.of_penalty(cae, args.rounds)
    yield from costs.of_jacobian_product(dae, args.rounds)
    if args.large_gb:
        peak = memory.peak_of_large_fit(args.large_gb, args.tmp)
        yield Figure(f"peak memory, {args.large_gb:g} GB .npy", "GB", (peak,), at_most=2.0)


if __name__ == "__main__":
    main()
