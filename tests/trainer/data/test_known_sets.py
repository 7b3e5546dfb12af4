"""Data sets known by name: located as the user says, upright, with their own validation rows."""

import os

import numpy as np
import pytest
import scipy.io

from trainer.data import DataOptions, load, split
from trainer.errors import DataError, RecipeError

REAL_FILES = os.environ.get("LOCALMOMENTS_DATA")


def all_rows(dataset):
    return dataset.source.read(0, dataset.rows)


def load_set(name, path=None, **options):
    return load(DataOptions(name, path=None if path is None else str(path), **options))


@pytest.fixture
def faces(tmp_path):
    """Ten pictures that mirror left to right, as faces do, but not top to bottom."""
    half = np.random.default_rng(0).integers(0, 255, (10, 64, 32), np.uint8)
    return np.concatenate([half, half[:, :, ::-1]], 2)


@pytest.fixture
def toronto(tmp_path):
    rng = np.random.default_rng(0)
    folds = rng.integers(0, 4, (40, 5)).astype(np.int8)
    images = rng.integers(0, 255, (40, 48, 48), np.uint8)
    labels = rng.integers(-1, 7, (40, 1)).astype(np.int8)
    scipy.io.savemat(
        tmp_path / "TFD_48x48.mat", {"images": images, "folds": folds, "labs_ex": labels}
    )
    return tmp_path, images, folds, labels


def test_mnist_holds_out_its_last_sixth(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (600, 784), np.uint8)
    np.savez(tmp_path / "mnist-train.npz", x=x, y=np.arange(600) % 10)
    mnist = load_set("mnist", tmp_path)
    parts = split(mnist, DataOptions("mnist"))
    assert parts.held_out.tolist() == list(range(500, 600))
    assert mnist.image == (28, 28) and mnist.labels[13] == 3
    np.testing.assert_array_equal(all_rows(mnist), x)


def test_mnist_reads_idx_files_in_a_folder(tmp_path, to_idx):
    x = np.random.default_rng(0).integers(0, 255, (12, 28, 28), np.uint8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(to_idx(x))
    np.testing.assert_array_equal(all_rows(load_set("mnist", tmp_path)), x.reshape(12, -1))


@pytest.mark.skipif(not REAL_FILES, reason="LOCALMOMENTS_DATA does not name the real files")
def test_the_real_files_have_their_known_shapes():
    mnist, frey = load_set("mnist", REAL_FILES), load_set("frey", REAL_FILES)
    parts = split(mnist, DataOptions("mnist"))
    assert (mnist.rows, mnist.dims, len(parts.held_out), parts.held_out[0]) == (
        60_000,
        784,
        10_000,
        50_000,
    )
    assert (frey.rows, frey.dims, frey.image) == (1965, 560, (28, 20))
    olivetti = load_set("olivetti", REAL_FILES)
    mean = all_rows(olivetti).mean(0).reshape(64, 64)
    assert (olivetti.rows, olivetti.image) == (400, (64, 64))
    assert np.abs(mean - mean[:, ::-1]).sum() < np.abs(mean - mean[::-1]).sum()


def test_frey_reads_the_published_mat(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (30, 560), np.uint8)
    scipy.io.savemat(tmp_path / "frey_rawface.mat", {"ff": x.T})
    frey = load_set("frey", tmp_path / "frey_rawface.mat")
    np.testing.assert_array_equal(all_rows(frey), x)
    assert frey.image == (28, 20)


def test_olivetti_faces_are_turned_upright_only_if_they_lie(tmp_path, faces):
    np.savez(tmp_path / "upright.npz", x=faces.reshape(10, -1))
    np.savez(tmp_path / "lying.npz", x=faces.transpose(0, 2, 1).reshape(10, -1))
    for name in ("upright.npz", "lying.npz"):
        np.testing.assert_array_equal(
            all_rows(load_set("olivetti", tmp_path / name)), faces.reshape(10, -1)
        )


def test_tfd_holds_out_the_test_rows_of_its_fold(toronto):
    folder, images, folds, labels = toronto
    tfd = load_set("tfd", folder, fold=2)
    parts = split(tfd, DataOptions("tfd", fold=2))
    np.testing.assert_array_equal(parts.held_out, np.flatnonzero(folds[:, 1] == 3))
    np.testing.assert_array_equal(all_rows(tfd), images.reshape(40, -1))
    assert tfd.image == (48, 48) and tfd.labels.tolist() == labels[:, 0].tolist()
    assert len(split(load_set("tfd", folder), DataOptions("tfd")).held_out) == 4


def test_an_unusable_tfd_file_is_refused_with_a_reason(toronto):
    folder, images, _, _ = toronto
    with pytest.raises(RecipeError, match=r"data\.fold` must be 1 to 5; got 6"):
        load_set("tfd", folder, fold=6)
    scipy.io.savemat(folder / "bare.mat", {"images": images})
    with pytest.raises(DataError, match=r"bare\.mat has no variable 'folds'; it has images"):
        load_set("tfd", folder / "bare.mat", fold=1)
    (folder / "new.mat").write_bytes(b"MATLAB 7.3 MAT-file" + bytes(600))
    with pytest.raises(DataError, match=r"new\.mat is a MATLAB 7\.3 file\. Save it again"):
        load_set("tfd", folder / "new.mat")


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.5, 0.99])
def test_a_truncated_mat_is_named(toronto, part):
    path = toronto[0] / "TFD_48x48.mat"
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(DataError, match=r"TFD_48x48\.mat"):
        load_set("tfd", path, fold=1)


def test_without_a_path_the_error_names_the_file_and_how_to_say_where_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("LOCALMOMENTS_DATA", raising=False)
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "frey-faces.npz", x=np.zeros((3, 560), np.uint8))
    monkeypatch.chdir(tmp_path)  # no folder is searched unless the user names it
    with pytest.raises(
        DataError, match=r"'frey' needs the file frey-faces\.npz .*--data PATH or LOCALMOMENTS_DATA"
    ):
        load_set("frey")


def test_the_environment_names_the_file_or_its_folder(tmp_path, monkeypatch):
    np.savez(tmp_path / "frey-faces.npz", x=np.zeros((3, 560), np.uint8))
    for place in (tmp_path, tmp_path / "frey-faces.npz"):
        monkeypatch.setenv("LOCALMOMENTS_DATA", str(place))
        assert load_set("frey").rows == 3
    with pytest.raises(DataError, match=r"There is no file or folder .*other\.npz"):
        load_set("frey", tmp_path / "other.npz")  # --data comes first


def test_a_folder_without_the_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"mnist-train\.npz .*The folder .* has no such file"):
        load_set("mnist", tmp_path)


def test_rows_of_another_width_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 100), np.uint8))
    with pytest.raises(DataError, match=r"x\.npz has rows of 100 values, but 'mnist' has 784"):
        load_set("mnist", tmp_path / "x.npz")


def test_digits_are_scaled_to_0_and_1_and_have_images_and_labels():
    digits = load_set("digits")
    assert (digits.rows, digits.image, all_rows(digits).max()) == (1797, (8, 8), 1.0)
    assert digits.labels[:3].tolist() == [0, 1, 2]
