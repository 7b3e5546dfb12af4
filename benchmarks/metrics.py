"""Check that the metrics rank sets of MNIST images as a person would.

    python benchmarks/metrics.py --data PATH [--models DIR] [--quick] [--only NAME ...]

Every set is compared with the same test rows, which neither a model nor the feature classifier was
trained on: real rows against real rows, training rows, sets that a person rejects at sight (one
repeated image, class means, images shrunk to the mean image, shrunken features, k-means centres),
and the samples of every shipped MNIST model (10,000 from 500 chains that began in noise).

Rows are kept in `results/metrics.json` and computed again only if their key changed: the data, the
plan, and for a model its files and scale. `results/metrics.md` is the table.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from localmoments.arrays import Floats
from localmoments.errors import DivergedError
from localmoments.model import Model, find_folder
from trainer.data import load
from trainer.evaluate import Budget, budget_for, read_split, rows_for, split_again
from trainer.evaluate.command import data_options
from trainer.evaluate.comparison import (
    ERRORS,
    Reference,
    SampleSet,
    compare_real_rows,
    compare_set,
    make_reference,
    pick_rows,
)
from trainer.evaluate.context import DIVERGED, Context, k_means_centres, make_context
from trainer.evaluate.report import REAL, SAMPLE_FIGURES, number_with_error, table
from trainer.progress import track

RESULTS = Path(__file__).parent / "results"
VERSION = 1  # of the metrics: raise it when a formula changes
SHRUNK = 0.8
COLUMNS = [name for name in SAMPLE_FIGURES if name not in ("bandwidth", "samples")]
SHRUNKEN_FEATURES = f"features × {SHRUNK}"

Figures = dict[str, Any]


def make_image_sets(context: Context, count: int) -> dict[str, Callable[[], SampleSet]]:
    """Return functions that make the sets that need no model, by name."""
    x, labels = context.rows.train.x, context.rows.train.labels
    assert labels is not None
    rng = np.random.default_rng(0)
    pick = np.sort(rng.choice(len(x), min(count, len(x)), replace=False))
    mean = x.mean(0)

    def compute_class_means() -> Floats:
        classes = np.unique(labels)
        means = np.stack([x[labels == c].mean(0) for c in classes])
        return np.asarray(means[np.searchsorted(classes, labels[pick])], np.float32)

    return {
        "training rows": lambda: SampleSet(pick_rows(x, count)),
        "one repeated image": lambda: SampleSet(np.repeat(x[pick[:1]], count, axis=0)),
        "class means": lambda: SampleSet(compute_class_means()),
        f"images shrunk to the mean, × {SHRUNK}": lambda: SampleSet(
            np.asarray(mean + SHRUNK * (x[pick] - mean), np.float32)
        ),
        "k-means centres": lambda: SampleSet(k_means_centres(context, count)),
    }


def draw_samples(context: Context) -> SampleSet:
    """Draw samples with the model's default kernel, scale and emission, from noise."""
    budget = context.budget
    steps = budget.kept_steps(budget.kept)
    label, total = context.model.manifest.reference, budget.walkers * budget.many_steps
    with track(context.stream, label, total) as advance:
        drawn = context.draw(budget.walkers, budget.many_steps, steps, advance, seed=1)
    return SampleSet(drawn.rows(context.emission), drawn.chains)


class Table:
    """The results: rows by name, saved after each one."""

    def __init__(self, folder: Path, only: list[str]) -> None:
        self.path, self.only = folder / "metrics.json", only
        stored = json.loads(self.path.read_text("utf-8")) if self.path.exists() else {}
        self.rows: dict[str, Figures] = stored.get("rows", {})
        self.facts: Figures = stored.get("facts", {})

    def fill(self, name: str, key: str, make: Callable[[], Figures]) -> None:
        """Compute a row, unless it is there with the same key."""
        if (self.only and name not in self.only) or self.rows.get(name, {}).get("key") == key:
            return
        print(f"{name} ...", file=sys.stderr, flush=True)
        self.rows[name] = {**make(), "key": key}
        self.write()

    def keep(self, names: list[str]) -> None:
        """Drop rows of models that are gone, and put the others in order."""
        self.rows = {name: self.rows[name] for name in names if name in self.rows}
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        body = {"facts": self.facts, "rows": self.rows}
        self.path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", "utf-8")
        self.path.with_suffix(".md").write_text(self.format(), "utf-8")

    def format(self) -> str:
        lines = []
        for name, figures in self.rows.items():
            errors = figures.get(ERRORS, {})
            cells = [number_with_error(figures[c], errors.get(c)) if c in figures else ""
                     for c in COLUMNS]  # fmt: skip
            lines.append([name, *(cells if "diverged" not in figures else [DIVERGED, *[""] * 6])])
        facts = ", ".join(f"{k}: {v}" for k, v in self.facts.items())
        return (
            "# Metrics of sets of MNIST images\n\nMade by `python benchmarks/metrics.py`. A figure "
            "is followed by its standard error, which includes what another run of the sampler and "
            "other test rows would change. Parzen of real against real is of half the test rows "
            f"under windows on the other half, so on fewer windows than the others.\n\n{facts}.\n\n"
            + table(["", *(SAMPLE_FIGURES[name] for name in COLUMNS)], lines)
            + "\n"
        )


def make_key(*parts: object) -> str:
    """Hash everything that a row depends on."""
    return hashlib.sha256(repr((VERSION, *parts)).encode()).hexdigest()[:16]


def describe_model(model: Model) -> object:
    m = model.manifest
    graphs = {name: digest for name, digest in m.files.items() if name.endswith(".onnx")}
    return (sorted(graphs.items()), m.default_kernel, m.kernels[m.default_kernel].scale)


def find_models(models: Path) -> list[Path]:
    """Return the newest version of every model of MNIST."""
    names = sorted(p.name for p in models.iterdir() if p.name.startswith("mnist-"))
    return [find_folder(name, models) for name in names]


def compare_samples(context: Context, reference: Reference, samples: SampleSet) -> Figures:
    return compare_set(samples, context.rows, reference, context.features, image=True).figures


def compare_shrunken_features(context: Context, reference: Reference, count: int) -> Figures:
    """Compare shrunken features. No images have them, so figures of images are left out."""
    features = context.features

    class Shrunken:
        description = SHRUNKEN_FEATURES

        def __call__(self, x: Floats) -> Floats:
            return np.asarray(SHRUNK * features(x), np.float32)

    shrunken = replace(reference, features=Shrunken())
    figures = shrunken.compare(pick_rows(context.rows.train.x, count))
    del figures["sliced Wasserstein"]
    errors = {name: estimate.error for name, estimate in figures.items()}
    return {**{name: estimate.value for name, estimate in figures.items()}, ERRORS: errors}


def run(data: str, models: Path, out: Path, budget: Budget, only: list[str]) -> None:
    folders = find_models(models)
    first = Model.open(folders[0])
    options = data_options(first.manifest.recipe["data"], data)
    dataset = load(options, None)
    record = read_split(first.manifest)
    split = split_again(dataset, options, record)
    rows = rows_for(dataset, split, first.manifest.normaliser, record)
    context = make_context(first, dataset, rows, budget, sys.stderr)
    reference = make_reference(rows.test.x, context.features, budget.set_rows)
    assert reference is not None, "MNIST has enough test rows"
    count = budget.walkers * budget.kept
    results = Table(out, only)
    results.facts = {"features": context.features.description, "sets": reference.description,
                     "test rows": len(rows.test)}  # fmt: skip
    common = (dataset.fingerprint, repr(budget))

    results.fill(REAL, make_key(common), lambda: compare_real_rows(
        rows, reference, context.features, image=True).figures)  # fmt: skip
    sets = make_image_sets(context, count)
    for name, make in sets.items():
        results.fill(name, make_key(common, name),
                     lambda make=make: compare_samples(context, reference, make()))  # type: ignore[misc]  # fmt: skip
    results.fill(SHRUNKEN_FEATURES, make_key(common, SHRUNKEN_FEATURES),
                 lambda: compare_shrunken_features(context, reference, count))  # fmt: skip
    names = [REAL, *sets, SHRUNKEN_FEATURES]
    for folder in folders:
        model = Model.open(folder)
        model_context = replace(context, model=model)

        def evaluate(model_context: Context = model_context) -> Figures:
            try:
                return compare_samples(model_context, reference, draw_samples(model_context))
            except DivergedError:
                return {"diverged": True}

        results.fill(model.manifest.name, make_key(common, describe_model(model)), evaluate)
        names.append(model.manifest.name)
    results.keep(names)
    print(results.format())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", required=True, metavar="PATH", help="the MNIST training images")
    parser.add_argument("--models", type=Path, default=Path("models"), metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="1,000 samples instead of 10,000")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="only these rows")
    args = parser.parse_args()
    budget = replace(budget_for(784, quick=args.quick, search=False), baseline=True)
    run(args.data, args.models, args.out, budget, args.only)


if __name__ == "__main__":
    main()
