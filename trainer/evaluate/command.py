"""The command `evaluate`: compute figures and draw plots for an existing artefact."""

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from localmoments import artefact as manifests
from localmoments.artefact import MANIFEST
from localmoments.model import Model
from trainer.atomic_files import replace_file, write_text
from trainer.card import CAPTIONS, card
from trainer.config import make_recipe
from trainer.data import DataOptions, Dataset, load
from trainer.data.known_sets import set_path
from trainer.errors import explain_write_errors
from trainer.evaluate.chains import budget_for
from trainer.evaluate.report import OPTIONS, figures_text
from trainer.evaluate.rows import read_split, split_again
from trainer.evaluate.run import check_width, evaluate
from trainer.export import CARD
from trainer.plots.artefact import draw_evaluation_plots


def evaluate_artefact(args: argparse.Namespace, folder: Path) -> None:
    """Evaluate an artefact, write the figures into its manifest and card, and print them."""
    model = Model.open(folder)
    options = data_options(model.manifest.recipe["data"], args.data)
    dataset = load(options, None)
    check_width(model, dataset)
    if dataset.fingerprint != model.manifest.data["fingerprint"]:
        print("Note: the model was not trained on this data, so all of it may be new to the model.",
              file=sys.stderr, flush=True)  # fmt: skip
    budget = budget_for(dataset.dims, quick=args.quick, search=args.search)
    other = _load_test_rows(options, args.test)
    if other is not None:
        check_width(model, other)
    split = split_again(dataset, options, read_split(model.manifest))
    evaluation = evaluate(model, dataset, split, budget, sys.stderr, other)
    with tempfile.TemporaryDirectory() as temporary:
        plots = draw_evaluation_plots(model, dataset, split, evaluation, Path(temporary))
        figures = {**evaluation.figures, OPTIONS: format_options(args)}
        update_artefact(folder, figures, plots, evaluation.scales, evaluation.moments_sigma,
                        evaluation.typical)  # fmt: skip
    print(figures_text(manifests.read(folder)))


def format_options(args: argparse.Namespace) -> str:
    """The options of the command line that change figures, for the card."""
    options = ("--quick" if args.quick else "", "" if args.search else "--no-search",
               f"--test {shlex.quote(args.test)}" if args.test else "")  # fmt: skip
    return " ".join(option for option in options if option)


def data_options(body: Mapping[str, Any], path: str | None) -> DataOptions:
    """The data options of a manifest's recipe; `path` says where the data is now."""
    return make_recipe({"name": "data", "data": set_path(body, path) if path else body}).data


def _load_test_rows(options: DataOptions, path: str | None) -> Dataset | None:
    """All rows of another file, read in the same way as the training data."""
    if path is None:
        return None
    return load(replace(data_options(asdict(options), path), rows=None), None)


def update_artefact(
    folder: Path,
    figures: Mapping[str, Any],
    plots: Sequence[Path] = (),
    scales: Mapping[str, float] | None = None,
    moments_sigma: float | None = None,
    typical: tuple[float, ...] = (),
) -> None:
    """Write new figures, plots, default scales and the level for clean rows into an artefact.

    A crash at any moment leaves a valid artefact: files that the manifest does not list are not
    checked, so the files that change are first taken off the list, then written, then listed
    again. Other files in the folder stay unlisted.
    """
    old = manifests.read(folder)
    kernels = {k: replace(v, scale=(scales or {}).get(k, v.scale)) for k, v in old.kernels.items()}
    manifest = replace(old, evaluation=dict(figures), kernels=kernels)
    if moments_sigma is not None:
        manifest = replace(manifest, moments_sigma=moments_sigma, typical=typical)
    changed = {CARD, *(plot.name for plot in plots)}
    listed = {*old.files, *changed}
    shown = [f"{name}.png" for name in CAPTIONS if f"{name}.png" in listed]
    files = {name: digest for name, digest in old.files.items() if name not in changed}
    with explain_write_errors(folder):
        write_text(folder / MANIFEST, manifests.dumps(replace(manifest, files=files)))
        for plot in plots:
            with replace_file(folder / plot.name) as temporary:
                shutil.copyfile(plot, temporary)
        write_text(folder / CARD, card(manifest, shown))
        digests = {name: manifests.sha256(folder / name) for name in changed}
        files = dict(sorted({**files, **digests}.items()))
        write_text(folder / MANIFEST, manifests.dumps(replace(manifest, files=files)))
