"""`python -m trainer evaluate`: figures and pictures into an artefact that is already there."""

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from localmoments import artefact as manifests
from localmoments.artefact import MANIFEST
from trainer.atomic_files import replace_file, write_text
from trainer.card import CAPTIONS, card
from trainer.config import make_recipe
from trainer.data import DataOptions, Dataset, load, split
from trainer.data.known_sets import KNOWN_SETS
from trainer.errors import explain_write_errors
from trainer.evaluate import Watch, check_width, evaluate, open_model, plan_for
from trainer.evaluate.album import draw_album
from trainer.export import CARD
from trainer.metrics_report import OPTIONS, figures_text


def judge(args: argparse.Namespace, folder: Path) -> None:
    """Judge an artefact and write the figures into its manifest and card."""
    model = open_model(folder)
    options = data_options(model.manifest.recipe["data"], args.data)
    dataset = load(options, None)
    check_width(model, dataset)
    if dataset.fingerprint != model.manifest.data["fingerprint"]:
        print("Note: this is not the data that the model was trained on, so all of it may be new.",
              file=sys.stderr, flush=True)  # fmt: skip
    plan = plan_for(dataset.dims, quick=args.quick, search=args.search)
    other = _test_rows(options, args.test)
    if other is not None:
        check_width(model, other)
    parts = split(dataset, options)
    judgement = evaluate(model, dataset, parts, plan, Watch(sys.stderr), other)
    with tempfile.TemporaryDirectory() as temporary:
        pictures = draw_album(model, dataset, parts, judgement, Path(temporary))
        figures = {**judgement.figures, OPTIONS: options_of(args)}
        rewrite(folder, figures, pictures, judgement.scales, judgement.moments_sigma,
                judgement.typical)  # fmt: skip
    print(figures_text(manifests.read(folder)))


def options_of(args: argparse.Namespace) -> str:
    """What was typed after `evaluate NAME` and changes figures; where data lies does not."""
    said = ("--quick" if args.quick else "", "" if args.search else "--no-search",
            f"--test {shlex.quote(args.test)}" if args.test else "")  # fmt: skip
    return " ".join(option for option in said if option)


def data_options(body: Mapping[str, Any], path: str | None) -> DataOptions:
    """The data that the manifest names, at its place or at another."""
    body = dict(body)
    if path:
        named = body["source"] in KNOWN_SETS and Path(path).suffix != ".csv"
        body["path" if named else "source"] = path
    return make_recipe({"name": "data", "data": body}).data


def _test_rows(options: DataOptions, path: str | None) -> Dataset | None:
    """All rows of another file, read as the training data is."""
    if path is None:
        return None
    if options.source in KNOWN_SETS:
        return load(replace(options, rows=None, path=path), None)
    return load(replace(options, rows=None, source=path), None)


def rewrite(
    folder: Path,
    figures: Mapping[str, Any],
    pictures: Sequence[Path] = (),
    scales: Mapping[str, float] | None = None,
    moments_sigma: float | None = None,
    typical: tuple[float, ...] = (),
) -> None:
    """Put new figures, pictures, default scales and the level for clean rows into an artefact.

    A crash in between leaves a valid artefact.

    Files that the manifest does not list are not checked, so what changes is first taken off the
    list, then written, then listed again. Whatever else lies in the folder stays unlisted.
    """
    old = manifests.read(folder)
    kernels = {k: replace(v, scale=(scales or {}).get(k, v.scale)) for k, v in old.kernels.items()}
    manifest = replace(old, evaluation=dict(figures), kernels=kernels)
    if moments_sigma is not None:
        manifest = replace(manifest, moments_sigma=moments_sigma, typical=typical)
    changed = {CARD, *(picture.name for picture in pictures)}
    listed = {*old.files, *changed}
    shown = [f"{name}.png" for name in CAPTIONS if f"{name}.png" in listed]
    files = {name: digest for name, digest in old.files.items() if name not in changed}
    with explain_write_errors(folder):
        write_text(folder / MANIFEST, manifests.dumps(replace(manifest, files=files)))
        for picture in pictures:
            with replace_file(folder / picture.name) as temporary:
                shutil.copyfile(picture, temporary)
        write_text(folder / CARD, card(manifest, shown))
        digests = {name: manifests.sha256(folder / name) for name in changed}
        files = dict(sorted({**files, **digests}.items()))
        write_text(folder / MANIFEST, manifests.dumps(replace(manifest, files=files)))
