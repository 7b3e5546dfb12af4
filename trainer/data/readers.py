"""Which reader a path gets, by its name."""

from collections.abc import Callable
from pathlib import Path

from trainer.data.arrays import read_npy, read_npz
from trainer.data.csv_table import read_csv
from trainer.data.dataset import Found
from trainer.data.idx import is_idx, read_idx
from trainer.data.images import SUFFIXES, read_images
from trainer.data.options import DataOptions
from trainer.data.parquet_table import read_parquet
from trainer.errors import DataError

Reader = Callable[[Path, DataOptions], Found]

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


def read_file(path: Path, options: DataOptions) -> Found:
    reader = _reader(path)
    if (options.columns or options.drop) and reader not in _TABLES:
        raise DataError(f"{path} is no table: data.columns and data.drop do not apply to it.")
    return reader(path, options)


def _reader(path: Path) -> Reader:
    if path.is_dir():
        return read_images
    if not path.exists():
        raise DataError(f"There is no file or folder {path}.")
    if not path.is_file():
        raise DataError(f"{path} is neither a file nor a folder.")
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty.")
    return read_idx if is_idx(path) else _by_suffix(path)


def _by_suffix(path: Path) -> Reader:
    name = path.name.lower()
    if path.suffix.lower() in SUFFIXES:
        raise DataError(f"{path} is one picture; give the folder that holds the pictures.")
    for suffix, reader in _READERS.items():
        if name.endswith(suffix):
            return reader
    raise DataError(
        f"{path} is of no known kind: .npy, .npz, .csv, .tsv, .txt (also .gz), .parquet, "
        "IDX, or a folder of pictures."
    )
