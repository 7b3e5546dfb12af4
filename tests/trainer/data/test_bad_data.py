"""Bad input is refused with one sentence that names the file or the column."""

import gzip
import os
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from trainer.data import DataOptions, load
from trainer.errors import DataError


def error_of(path, **options):
    with pytest.raises(DataError) as caught:
        load(DataOptions(str(path), **options))
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def is_named(path, sentence):
    return path.name in sentence


def save_array(folder, array, name="x.npy"):
    np.save(folder / name, array, allow_pickle=True)
    return folder / name


def write_text(folder, content, name="t.csv"):
    (folder / name).write_text(content)
    return folder / name


def truncate(path, part=0.5):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    return path


@pytest.mark.parametrize(
    "name",
    ["a.npy", "a.npz", "a.csv", "a.csv.gz", "a.parquet", "a-idx3-ubyte", "a.idx.gz", "a.tsv"],
)
def test_an_empty_file_is_named(tmp_path, name):
    assert error_of(write_text(tmp_path, "", name)) == f"{tmp_path / name} is empty."


@pytest.mark.parametrize(
    "name", ["a.npy", "a.npz", "a.parquet", "a-idx3-ubyte", "a.csv.gz", "a.idx.gz"]
)
def test_a_file_of_another_format_than_its_suffix_is_named(tmp_path, name):
    path = write_text(tmp_path, "hello, this is no such file\n" * 20, name)
    assert is_named(path, error_of(path))


@pytest.mark.parametrize("part", [0.02, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_named(tmp_path, write_binary, part):
    path = write_binary(tmp_path, np.random.default_rng(0).integers(0, 256, (300, 9)).astype(float))
    truncate(path, part)
    assert is_named(path, error_of(path))


def test_a_truncated_image_is_named(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (2, 40, 40), np.uint8)
    for name, pixels in zip(("a.png", "b.png"), noise, strict=True):
        Image.fromarray(pixels).save(tmp_path / name)
    truncate(tmp_path / "b.png")
    assert "b.png is not a readable image" in error_of(tmp_path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("rows", [2000, 2_000_000])  # one block, and several
def test_flipped_bytes_in_an_npz_are_noticed(tmp_path, save, rows):
    save(tmp_path / "x.npz", x=np.random.default_rng(0).integers(0, 99, (rows, 4), np.uint8))
    data = bytearray((tmp_path / "x.npz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "x.npz").write_bytes(data)
    assert "x.npz is damaged" in error_of(tmp_path / "x.npz")


def test_a_truncated_npy_too_large_for_memory_is_refused_before_it_is_read(tmp_path):
    path = truncate(save_array(tmp_path, np.zeros((300, 9))), 0.9)
    assert "x.npy is cut short" in error_of(path, memory_limit=100)


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.array([[1, "a"], [None, 2]], object), "pickled"),
        (np.ones((3, 2), complex), "complex"),
        (np.array([["a", "b"], ["c", "d"]]), "text"),
        (np.array([b"a", b"b"]), "text"),
        (np.array(["2020-01-01"], "M8[D]"), "dates"),
        (np.zeros(3, [("a", "f4"), ("b", "i4")]), "records"),
        (np.float64(3), "single number"),
        (np.zeros((0, 3)), "empty"),
        (np.zeros((3, 0)), "empty"),
        (np.zeros((1, 3)), "one row"),
    ],
)
def test_an_array_that_is_not_rows_of_numbers_is_refused_with_its_kind(tmp_path, array, word):
    sentence = error_of(save_array(tmp_path, array))
    assert "x.npy" in sentence and word in sentence
    np.savez(tmp_path / "x.npz", x=array)
    sentence = error_of(tmp_path / "x.npz")
    assert "x.npz" in sentence and word in sentence


def test_errors_about_npz_files_name_their_arrays(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros((2, 2)), b=np.zeros((2, 2)))
    sentence = error_of(tmp_path / "x.npz")
    assert "a, b" in sentence and "--set data.key=NAME" in sentence
    assert "no array 'c'; it has a, b" in error_of(tmp_path / "x.npz", key="c")
    with zipfile.ZipFile(tmp_path / "z.npz", "w") as archive:
        archive.writestr("readme", "x")
    assert "contains no arrays" in error_of(tmp_path / "z.npz")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n", ["header but no rows"]),
        ("a,b\n1,2\n", ["one row"]),
        ("\n \n\n", ["empty"]),
        ("a,b\n1,2\n3\n", ["ragged", "line 3", "1 values, but 2"]),
        ("a,b\n1,2\n3,4,5\n", ["ragged", "3 values, but 2"]),
        ("a,city,z\n1,Oslo,x\n2,Rome,y\n",
         ["'city' (such as 'Oslo')", "'z' (such as 'x')", """--set 'data.drop=["city", "z"]'"""]),
        ("a,b\n1,\n,3\nNA,4\n",
         ["column 'a' (2)", "column 'b' (1)", "--set data.missing=drop", "mean"]),
        ("5.1,3.5,Iris\n4.9,3.0,Iris\n", ["'column3' (such as 'Iris')"]),
    ],
)  # fmt: skip
def test_an_unusable_table_is_refused_with_a_reason(tmp_path, content, words):
    sentence = error_of(write_text(tmp_path, content))
    for word in ["t.csv", *words]:
        assert word in sentence


def test_a_word_deep_in_a_column_of_numbers_is_found(tmp_path):
    path = write_text(tmp_path, "a,b\n" + "1,2\n" * 1000 + "1,twelve\n" + "1,2\n" * 1000)
    sentence = error_of(path)
    assert "'twelve' in line 1002 of column 'b'" in sentence and """data.drop=["b"]""" in sentence
    sentence = error_of(path, columns=("b",))
    assert "'twelve'" in sentence and "column 'b'" in sentence


def test_the_error_for_a_missing_column_lists_the_columns(tmp_path):
    path = write_text(tmp_path, "a,b\n1,2\n3,4\n")
    assert "no column 'c', 'd'; its columns are 'a', 'b'" in error_of(
        path, columns=("c",), drop=("d",)
    )
    assert "leave no column of" in error_of(path, drop=("a", "b"))
    assert "is not a table" in error_of(save_array(tmp_path, np.zeros((3, 3))), drop=("a",))


def test_text_and_missing_values_in_parquet_are_named(tmp_path):
    path = tmp_path / "t.parquet"
    words = pa.array(["x", "y", "x"]).dictionary_encode()
    pq.write_table(pa.table({"a": [1, 2, 3], "s": words, "l": [[1], [2], [3]]}), path)
    sentence = error_of(path)
    assert "t.parquet" in sentence and "'s' (such as 'x')" in sentence and "'l'" in sentence
    pq.write_table(pa.table({"a": [1.0, None, float("nan")], "n": pa.nulls(3)}), path)
    assert "column 'a' (2), column 'n' (3)" in error_of(path)
    assert "no values at all in column 'n'" in error_of(path, missing="mean")
    assert "Every row" in error_of(path, missing="drop")
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), path)
    assert "no rows" in error_of(path)


def test_binary_data_named_csv_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(os.urandom(1000) + b"\0")
    assert "t.csv is not a text table" in error_of(tmp_path / "t.csv")


def test_the_error_for_images_of_two_sizes_names_both_files(tmp_path):
    Image.new("L", (4, 3)).save(tmp_path / "a.png")
    Image.new("L", (5, 3)).save(tmp_path / "b.png")
    sentence = error_of(tmp_path)
    assert "a.png is 4×3" in sentence and "b.png is 5×3" in sentence


def test_a_single_image_and_a_folder_without_images_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    assert "contains no images" in error_of(tmp_path)
    Image.new("L", (4, 3)).save(tmp_path / "a.png")
    assert "name the folder" in error_of(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no picture")
    assert "b.png is not a readable image" in error_of(tmp_path)


def test_a_path_that_cannot_be_read_is_named(tmp_path):
    assert "There is no file or folder" in error_of(tmp_path / "nothing.csv")
    assert "not of a supported type" in error_of(write_text(tmp_path, "x", "a.docx"))
    os.mkfifo(tmp_path / "pipe.csv")
    assert "neither a file nor a folder" in error_of(tmp_path / "pipe.csv")


def test_a_file_without_read_permission_is_named(tmp_path):
    path = save_array(tmp_path, np.zeros((3, 3)))
    path.chmod(0)
    was = os.geteuid()
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:2]:
        parent.chmod(0o755)
    try:
        if was == 0:
            os.seteuid(65534)  # root may read anything
        assert error_of(path) == f"{path} cannot be read: permission denied."
    finally:
        os.seteuid(was)


@pytest.mark.parametrize("magic", [b"\0\0\x07\x02", b"\1\0\x08\x02", b"\0\0"])
def test_a_wrong_idx_magic_is_shown(tmp_path, magic):
    (tmp_path / "a.idx").write_bytes(magic + b"\0\0\0\2" * 4)
    sentence = error_of(tmp_path / "a.idx")
    assert "a.idx is not an IDX file" in sentence and magic.hex() in sentence


def test_a_truncated_gzip_file_is_named(tmp_path):
    data = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    (tmp_path / "a.csv.gz").write_bytes(data[:-12])
    assert "a.csv.gz is damaged or cut short" in error_of(tmp_path / "a.csv.gz")
