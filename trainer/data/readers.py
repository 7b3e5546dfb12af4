"""Load a data set: choose the reader by name, folder or file suffix, and read the rows."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from trainer.data.arrays import read_npy, read_npz
from trainer.data.csv_tables import read_csv
from trainer.data.dataset import DataOptions, Dataset, Notes, RawData, compute_fingerprint
from trainer.data.idx import is_idx, read_idx
from trainer.data.images import SUFFIXES, read_images
from trainer.data.known_sets import (
    KNOWN_SETS,
    finish_rows,
    locate_file,
    read_mat_set,
    reads_mat,
    set_image,
)
from trainer.data.parquet import read_parquet
from trainer.data.sources import ArraySource, Index, Source
from trainer.data.staging import gather_rows
from trainer.data.synthetic import SYNTHETIC, draw_rows
from trainer.errors import DataError, RecipeError, explain_read_errors

Reader = Callable[[Path, DataOptions], RawData]

_READERS: dict[str, Reader] = {
    ".npy": read_npy,
    ".npz": read_npz,
    ".parquet": read_parquet,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".txt": read_csv,
    ".csv.gz": read_csv,
    ".tsv.gz": read_csv,
    ".txt.gz": read_csv,
}
_TABLES = (read_csv, read_parquet)


def load(options: DataOptions, staging: Path | None = None) -> Dataset:
    """Load the data set that `options` describe: a built-in name, a file or a folder of images.

    staging: folder for the .npy copy of data that is larger than `options.memory_limit` and is
    not an .npy file itself. Without it a temporary file is used, which disappears with the
    data set.

    Raises DataError if the data cannot be read, and RunFolderError if the copy cannot be written.
    """
    dataset = _load(options, staging)
    if options.image is None:
        return dataset
    if math.prod(options.image) != dataset.dims:
        shape = "×".join(map(str, options.image))
        raise DataError(
            f"{dataset.name} has {dataset.dims} columns, which do not make an image of {shape}."
        )
    return replace(dataset, image=options.image)


def _load(options: DataOptions, staging: Path | None) -> Dataset:
    if options.path is not None and options.source not in KNOWN_SETS:
        raise RecipeError(
            f"`data.path` (--data) is only for the data sets {', '.join(KNOWN_SETS)}; the data is "
            f"already given as {options.source}."
        )
    if options.source in SYNTHETIC:
        return _draw_synthetic(options)
    if options.source == "digits":
        return _load_digits(options)
    if options.source in KNOWN_SETS:
        return _load_known_set(options, staging)
    return _load_file(options, staging)


def _load_file(options: DataOptions, staging: Path | None) -> Dataset:
    path = Path(options.source).expanduser()
    with explain_read_errors(path):
        raw = read_file(path, options)
        source, notes = gather_rows(raw, options, staging)
    name = path.name or str(path.resolve().name)
    return _make_dataset(name, path, source, raw, notes, None, options)


def _load_known_set(options: DataOptions, staging: Path | None) -> Dataset:
    name, held_out = options.source, None
    path = locate_file(name, options.path)
    with explain_read_errors(path):
        if reads_mat(name, path):
            raw, held_out = read_mat_set(name, path, options)
        else:
            raw = read_file(path, options)
        raw = set_image(name, path, raw)
        source, notes = gather_rows(raw, options, staging)
    source, last_rows = finish_rows(name, source)
    if held_out is None:
        held_out = last_rows
    return _make_dataset(name, path, source, raw, notes, held_out, options)


def _make_dataset(
    name: str, path: Path, source: Source, raw: RawData, notes: Notes, held_out: Index | None,
    options: DataOptions,
) -> Dataset:  # fmt: skip
    if source.rows < 2:
        count = "only one row" if source.rows else "no rows"
        raise DataError(f"{path} has {count}; at least 2 are needed.")
    labels = None if raw.labels is None else raw.labels[: source.rows]
    fingerprint = compute_fingerprint(source, options.memory_limit)
    return Dataset(name, source, raw.features, raw.image, labels, None, fingerprint,
                   raw.notes + notes, held_out)  # fmt: skip


def _draw_synthetic(options: DataOptions) -> Dataset:
    law, x = draw_rows(options.source, options.rows, options.seed)
    source = ArraySource(x)
    fingerprint = compute_fingerprint(source, x.nbytes)
    return Dataset(options.source, source, None, None, None, law, fingerprint, ())


def _load_digits(options: DataOptions) -> Dataset:
    """Load scikit-learn's 8×8 digits, scaled from 0..16 to [0, 1]."""
    from sklearn.datasets import load_digits  # takes a second, and only this data set needs it

    x, y = load_digits(return_X_y=True)
    source = ArraySource((x[: options.rows] / 16).astype(np.float32))
    labels = np.asarray(y[: options.rows], np.int64)
    fingerprint = compute_fingerprint(source, x.nbytes)
    return Dataset("digits", source, None, (8, 8), labels, None, fingerprint, ())


def read_file(path: Path, options: DataOptions) -> RawData:
    """Describe the file or folder at `path` with the reader for its kind.

    Raises DataError if there is no such file or no reader for it, or if `options.columns` or
    `options.drop` are set for a file that is not a table.
    """
    reader = _choose_reader(path)
    if (options.columns or options.drop) and reader not in _TABLES:
        raise DataError(f"{path} is not a table: `data.columns` and `data.drop` need a table.")
    return reader(path, options)


def _choose_reader(path: Path) -> Reader:
    if path.is_dir():
        return read_images
    if not path.exists():
        raise DataError(f"There is no file or folder {path}.")
    if not path.is_file():
        raise DataError(f"{path} is neither a file nor a folder.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    return read_idx if is_idx(path) else _choose_by_suffix(path)


def _choose_by_suffix(path: Path) -> Reader:
    name = path.name.lower()
    if path.suffix.lower() in SUFFIXES:
        raise DataError(f"{path} is a single image; name the folder that holds the images.")
    for suffix, reader in _READERS.items():
        if name.endswith(suffix):
            return reader
    raise DataError(
        f"{path} is not of a supported type. Supported are .npy, .npz, .csv, .tsv, .txt (also "
        "with .gz), .parquet, IDX, and folders of images."
    )
