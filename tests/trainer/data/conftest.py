"""Writers of the same rows in every format."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

Writer = Callable[[Path, NDArray], Path]


def write_npy(folder, x):
    np.save(folder / "a.npy", x)
    return folder / "a.npy"


def write_npy_columns(folder, x):
    np.save(folder / "f.npy", np.asfortranarray(x))
    return folder / "f.npy"


def write_npy_big_endian(folder, x):
    np.save(folder / "be.npy", x.astype(x.dtype.newbyteorder(">")))
    return folder / "be.npy"


def write_npz(folder, x):
    np.savez(folder / "a.npz", x=x)
    return folder / "a.npz"


def write_npz_packed(folder, x):
    np.savez_compressed(folder / "p.npz", x=x)
    return folder / "p.npz"


def write_npz_columns(folder, x):
    np.savez_compressed(folder / "f.npz", x=np.asfortranarray(x))
    return folder / "f.npz"


def csv_text(x, delimiter=","):
    lines = [delimiter.join(f"c{j}" for j in range(x.shape[1]))]
    lines += [delimiter.join(repr(float(v)) for v in row) for row in x]
    return "\n".join(lines) + "\n"


def write_csv(folder, x):
    (folder / "a.csv").write_text(csv_text(x))
    return folder / "a.csv"


def write_csv_gz(folder, x):
    (folder / "a.csv.gz").write_bytes(gzip.compress(csv_text(x, ";").encode()))
    return folder / "a.csv.gz"


def write_tsv(folder, x):
    (folder / "a.tsv").write_text(csv_text(x, "\t"))
    return folder / "a.tsv"


def write_txt(folder, x):
    np.savetxt(folder / "a.txt", x, fmt="%.17g")  # spaces, no header
    return folder / "a.txt"


def write_parquet(folder, x):
    table = pa.table({f"c{j}": x[:, j].astype(np.float64) for j in range(x.shape[1])})
    pq.write_table(table, folder / "a.parquet", row_group_size=7)
    return folder / "a.parquet"


def idx_bytes(x, kind=0x08, dtype=">u1"):
    return (
        bytes([0, 0, kind, x.ndim])
        + struct.pack(f">{x.ndim}I", *x.shape)
        + x.astype(dtype).tobytes()
    )


def write_idx(folder, x):
    (folder / "a.idx").write_bytes(idx_bytes(x, 0x0E, ">f8"))
    return folder / "a.idx"


def write_idx_gz(folder, x):
    (folder / "a-idx2-double.idx.gz").write_bytes(gzip.compress(idx_bytes(x, 0x0E, ">f8")))
    return folder / "a-idx2-double.idx.gz"


def write_images(folder, x):
    (folder / "pictures").mkdir()
    for i, row in enumerate(x.astype(np.uint8)):
        Image.fromarray(row.reshape(1, -1)).save(folder / "pictures" / f"{i:05}.png")
    return folder / "pictures"


WRITERS: dict[str, Writer] = {
    name.removeprefix("write_"): f
    for name, f in list(globals().items())
    if name.startswith("write_")
}


@pytest.fixture(params=list(WRITERS))
def write(request) -> Writer:
    """The writer of each format in turn. All formats can store whole numbers from 0 to 255."""
    return WRITERS[request.param]


STREAMED = ["npz_packed", "npz_columns", "npy_columns", "csv", "csv_gz", "parquet", "idx", "images"]
BINARY = ["npy", "npy_columns", "npz", "npz_packed", "csv_gz", "parquet", "idx", "idx_gz"]


@pytest.fixture(params=STREAMED)
def write_streamed(request) -> Writer:
    """The writers of formats whose rows must be read in order."""
    return WRITERS[request.param]


@pytest.fixture(params=BINARY)
def write_binary(request) -> Writer:
    """The writers of formats that reveal a missing part."""
    return WRITERS[request.param]


@pytest.fixture
def whole_numbers() -> NDArray:
    return np.random.default_rng(1).integers(0, 256, (53, 6)).astype(np.float64)


@pytest.fixture
def to_idx():
    return idx_bytes
