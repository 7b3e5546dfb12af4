"""From a name or a path to a data set."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainer.data.dataset import Dataset, Found
from trainer.data.fingerprint import fingerprint
from trainer.data.known_sets import NAMED, find, finish, read_named
from trainer.data.options import DataOptions
from trainer.data.readers import read_file
from trainer.data.source import ArraySource, Index, Source
from trainer.data.staging import gather
from trainer.data.synthetic import SYNTHETIC, draw
from trainer.errors import DataError, explain_read_errors


def load(options: DataOptions, staging: Path | None = None) -> Dataset:
    """The data set that `options` describe.

    staging: the folder where data too large for memory, and not already a plain .npy, is
    converted once; without it a nameless temporary file is used.
    """
    dataset = _loaded(options, staging)
    if options.image is None:
        return dataset
    if math.prod(options.image) != dataset.dims:
        shape = "×".join(map(str, options.image))
        raise DataError(f"{dataset.name} has {dataset.dims} columns, which is no {shape} picture.")
    return replace(dataset, image=options.image)


def _loaded(options: DataOptions, staging: Path | None) -> Dataset:
    if options.source in SYNTHETIC:
        return _synthetic(options)
    if options.source == "digits":
        return _digits(options)
    if options.source in NAMED:
        return _named(options, staging)
    return _file(options, staging)


def _file(options: DataOptions, staging: Path | None) -> Dataset:
    path = Path(options.source).expanduser()
    with explain_read_errors(path):
        found = read_file(path, options)
        source, notes = gather(found, options, staging)
    name = path.name or str(path.resolve().name)
    return _dataset(name, str(path), source, found, notes, None, options)


def _named(options: DataOptions, staging: Path | None) -> Dataset:
    path = find(options.source, options.path)
    with explain_read_errors(path):
        found, fold = read_named(options.source, path, options)
        source, notes = gather(found, options, staging)
    source, own = finish(options.source, source)
    held_out = own if fold is None else fold
    return _dataset(options.source, str(path), source, found, notes, held_out, options)


def _dataset(
    name: str, where: str, source: Source, found: Found, notes: tuple[str, ...],
    held_out: Index | None, options: DataOptions,
) -> Dataset:  # fmt: skip
    if source.rows < 2:
        raise DataError(f"{where} has {'one row' if source.rows else 'no rows'}; 2 are needed.")
    labels = None if found.labels is None else found.labels[: source.rows]
    print_ = fingerprint(source, options.memory_limit)
    return Dataset(name, source, found.features, found.image, labels, None, print_,
                   found.notes + notes, held_out)  # fmt: skip


def _synthetic(options: DataOptions) -> Dataset:
    truth, x = draw(options.source, options.rows, options.seed)
    source = ArraySource(x)
    print_ = fingerprint(source, x.nbytes)
    return Dataset(options.source, source, None, None, None, truth, print_, ())


def _digits(options: DataOptions) -> Dataset:
    """Scikit-learn's 8×8 digits; 16 is white."""
    from sklearn.datasets import load_digits  # takes a second, and only this needs it

    x, y = load_digits(return_X_y=True)
    source = ArraySource((x[: options.rows] / 16).astype(np.float32))
    labels = np.asarray(y[: options.rows], np.int64)
    print_ = fingerprint(source, x.nbytes)
    return Dataset("digits", source, None, (8, 8), labels, None, print_, ())
