"""Every format returns the rows that were written, with names, labels and image shapes."""

import gzip
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from trainer.data import DataOptions, load
from trainer.errors import DataError, RecipeError


def all_rows(dataset):
    return dataset.source.read(0, dataset.rows)


def load_file(path, **options):
    return load(DataOptions(str(path), **options))


def write_text(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_format_returns_the_rows_that_were_written(tmp_path, write, whole_numbers):
    path = write(tmp_path, whole_numbers)
    np.testing.assert_array_equal(all_rows(load_file(path)), whole_numbers)
    np.testing.assert_array_equal(all_rows(load_file(path, rows=11)), whole_numbers[:11])


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((4, 28, 28), (28, 28)),
        ((4, 8, 6, 3), (8, 6, 3)),
        ((4, 8, 6, 1), (8, 6)),
        ((4, 1, 8, 6), (8, 6)),
        ((4, 3, 8, 6), None),
        ((4, 9), None),
        ((4,), None),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_more_axes_are_flattened_and_keep_their_image(tmp_path, shape, image, order):
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    np.save(tmp_path / "x.npy", np.asarray(x, order=order))
    dataset = load_file(tmp_path / "x.npy")
    np.testing.assert_array_equal(all_rows(dataset), x.reshape(4, -1))
    assert dataset.image == image
    assert bool(dataset.notes) == (shape == (4, 3, 8, 6))


def test_flat_rows_are_images_if_their_shape_is_given(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(24.0).reshape(4, 6))
    assert load_file(tmp_path / "a.npy").image is None
    assert load_file(tmp_path / "a.npy", image=(3, 2)).image == (3, 2)
    with pytest.raises(DataError, match=r"a\.npy has 6 columns, which do not make an image of 3×3"):
        load_file(tmp_path / "a.npy", image=(3, 3))
    with pytest.raises(RecipeError, match=r"data\.image"):
        load_file(tmp_path / "a.npy", image=(6,))


def test_an_npz_file_yields_the_key_or_x_or_the_only_array(tmp_path):
    a, b = np.zeros((3, 2)), np.ones((3, 2))
    np.savez(tmp_path / "two.npz", x=a, other=b, y=np.array([1, 2, 3]))
    np.savez(tmp_path / "one.npz", other=b)
    assert all_rows(load_file(tmp_path / "two.npz")).sum() == 0
    assert load_file(tmp_path / "two.npz", rows=2).labels.tolist() == [1, 2]
    assert all_rows(load_file(tmp_path / "one.npz")).sum() == 6
    assert all_rows(load_file(tmp_path / "two.npz", key="other")).sum() == 6


def test_idx_finds_its_labels(tmp_path, to_idx):
    x = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(to_idx(x))
    labels = gzip.compress(to_idx(np.array([3, 1, 2, 0], np.uint8)))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(labels)
    dataset = load_file(tmp_path / "train-images-idx3-ubyte")
    assert dataset.image == (3, 2) and dataset.labels.tolist() == [3, 1, 2, 0]
    assert all_rows(dataset).dtype == np.uint8
    np.testing.assert_array_equal(all_rows(dataset), x.reshape(4, -1))


def test_columns_keep_the_given_order_and_are_dropped_by_name(tmp_path):
    path = write_text(tmp_path, "a,b,city\n1,2,Oslo\n3,4,Rome\n")
    assert all_rows(load_file(path, columns=("b", "a"))).tolist() == [[2, 1], [4, 3]]
    assert load_file(path, drop=("city",)).features == ("a", "b")
    pq.write_table(pa.table({"a": [1, 2], "b.c": [3, 4], "s": ["x", "y"]}), tmp_path / "t.parquet")
    dataset = load_file(tmp_path / "t.parquet", columns=("b.c", "a"))
    assert all_rows(dataset).tolist() == [[3, 1], [4, 2]] and dataset.features == ("b.c", "a")


@pytest.mark.parametrize(
    ("content", "names", "rows"),
    [
        ("1,2\n3,4\n", ("column1", "column2"), [[1, 2], [3, 4]]),
        ("a;b\n1,5;2\n3;4,25\n", ("a", "b"), [[1.5, 2], [3, 4.25]]),
        ("a\tb\r\n1\t2\r\n3\t4\r\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("a\n1\n2\n", ("a",), [[1], [2]]),
        (",a\n0,5\n1,7\n", ("column1", "a"), [[0, 5], [1, 7]]),
        ("0,1\n5,6\n7,8\n", ("0", "1"), [[5, 6], [7, 8]]),
        ('"x, m","y"\n1,2\n3,4\n', ("x, m", "y"), [[1, 2], [3, 4]]),
        ("\n\na,b\n1,2\n\n3,4\n\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("a,a,\n1,2,3\n4,5,6\n", ("a", "a_2", "column3"), [[1, 2, 3], [4, 5, 6]]),
        ("a,b\nTrue,1\nfalse,2\n", ("a", "b"), [[1, 1], [0, 2]]),
        ("\ufeffa,b\n1,2\n3,4\n", ("a", "b"), [[1, 2], [3, 4]]),
        ("gr\xf6\xdfe,b\n1,2\n3,4\n".encode("latin-1"), ("größe", "b"), [[1, 2], [3, 4]]),
        ("a,b\n1,2\n3,4\n".encode("utf-16"), ("a", "b"), [[1, 2], [3, 4]]),
        ("a,b\n 1 , 2e3\n-3,4", ("a", "b"), [[1, 2000], [-3, 4]]),
    ],
)
def test_the_layout_of_a_text_table_is_detected(tmp_path, content, names, rows):
    dataset = load_file(write_text(tmp_path, content))
    assert dataset.features == names
    assert all_rows(dataset).tolist() == rows


def test_a_column_that_counts_the_rows_is_noted(tmp_path):
    dataset = load_file(
        write_text(tmp_path, "id,a\n" + "".join(f"{i},{i * i}\n" for i in range(5)))
    )
    assert any("'id' only counts the rows" in note for note in dataset.notes)


def test_parquet_numbers_of_every_kind(tmp_path):
    table = pa.table(
        {
            "i": pa.array([1, 2], pa.int8()),
            "u": pa.array([2**40, 1], pa.uint64()),
            "h": pa.array(np.array([0.5, 1], np.float16)),
            "b": pa.array([True, False]),
            "d": pa.array([Decimal("1.25"), Decimal("2.50")]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    assert all_rows(load_file(tmp_path / "t.parquet")).tolist() == [
        [1, 2**40, 0.5, 1, 1.25],
        [2, 1, 1, 0, 2.5],
    ]


def test_missing_values_can_be_dropped_or_filled(tmp_path):
    path = write_text(tmp_path, "a,b\n1,2\n,4\n3,NA\n5,6\n")
    assert all_rows(load_file(path, missing="drop")).tolist() == [[1, 2], [5, 6]]
    assert all_rows(load_file(path, missing="mean")).tolist() == [[1, 2], [3, 4], [3, 4], [5, 6]]
    assert "2 of 4 rows" in load_file(path, missing="drop").notes[-1]
    assert "column 'a' (1), column 'b' (1)" in load_file(path, missing="mean").notes[-1]


def write_images(folder, **colours):
    folder.mkdir(parents=True, exist_ok=True)
    for name, (mode, colour) in colours.items():
        Image.new(mode, (5, 3), colour).save(folder / f"{name}.png")
    return folder


def test_grey_images_stay_grey_and_colour_images_stay_colour(tmp_path):
    grey = load_file(write_images(tmp_path / "g", b=("L", 7), a=("1", 1)))
    assert grey.image == (3, 5) and all_rows(grey)[:, 0].tolist() == [255, 7]
    colour = load_file(write_images(tmp_path / "c", a=("RGB", (1, 2, 3)), b=("L", 9)))
    assert colour.image == (3, 5, 3) and all_rows(colour)[:, :3].tolist() == [[1, 2, 3], [9, 9, 9]]
    assert any("mixed" in note for note in colour.notes)


def test_alpha_is_dropped_and_sixteen_bits_are_scaled(tmp_path):
    alpha = load_file(
        write_images(tmp_path / "a", a=("RGBA", (1, 2, 3, 4)), b=("RGBA", (5, 6, 7, 8)))
    )
    assert alpha.image == (3, 5, 3) and all_rows(alpha)[0, :3].tolist() == [1, 2, 3]
    assert any("alpha" in note for note in alpha.notes)
    deep = load_file(write_images(tmp_path / "d", a=("I;16", 65535), b=("I;16", 65280)))
    assert all_rows(deep)[:, 0].tolist() == [255, 254]


def test_subfolders_are_classes(tmp_path):
    write_images(tmp_path / "p" / "cat", a=("L", 1), b=("L", 2))
    write_images(tmp_path / "p" / "dog", c=("L", 3))
    (tmp_path / "p" / ".DS_Store").write_text("x")
    (tmp_path / "p" / "dog" / "README").write_text("x")
    dataset = load_file(tmp_path / "p")
    assert dataset.labels.tolist() == [0, 0, 1] and all_rows(dataset)[:, 0].tolist() == [1, 2, 3]
    assert any("README" in note for note in dataset.notes)
    assert any("hidden" in note for note in dataset.notes)


def test_equal_rows_have_equal_fingerprints_and_large_data_is_sampled(tmp_path):
    x = np.random.default_rng(0).normal(size=(1000, 3))
    np.save(tmp_path / "a.npy", x)
    np.savez(tmp_path / "b.npz", x=x)
    a, b = load_file(tmp_path / "a.npy"), load_file(tmp_path / "b.npz")
    assert a.fingerprint == b.fingerprint and a.fingerprint.startswith("sha256:")
    assert load_file(tmp_path / "a.npy", memory_limit=99).fingerprint.startswith("sha256-sampled:")
    x[500, 1] += 1
    np.save(tmp_path / "a.npy", x)
    assert load_file(tmp_path / "a.npy").fingerprint != a.fingerprint
