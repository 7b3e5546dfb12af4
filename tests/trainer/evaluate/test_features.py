"""The classifier learns what can be learnt; classes of samples; principal components; the cache."""

import numpy as np
import pytest
import torch

from trainer.evaluate.features import (
    Network,
    Principal,
    cache_folder,
    can_classify,
    change_rate,
    class_shares,
    fit_principal,
    measure_accuracy,
    normalised_entropy,
    read_or_make,
    train_classifier,
)


def test_class_shares_include_classes_that_never_occur():
    assert class_shares(np.array([0, 0, 2, 2]), 4).tolist() == [0.5, 0, 0.5, 0]


@pytest.mark.parametrize("count", [2, 10])
def test_entropy_is_one_for_equal_classes_and_zero_for_one(count):
    assert normalised_entropy(np.arange(30 * count) % count, count) == pytest.approx(1)
    assert normalised_entropy(np.full(30, 1), count) == 0


def test_entropy_of_two_of_four_classes_is_a_half():
    assert normalised_entropy(np.array([0, 1] * 10), 4) == pytest.approx(0.5)


def test_changes_of_class_are_counted_along_each_chain_and_not_across_walkers():
    still = np.tile([0, 1, 2], (10, 1))  # (T, W)
    assert change_rate(still) == 0
    assert change_rate(still.T.repeat(2, axis=0)[:6]) == pytest.approx(2 / 5)


def spots(n, seed=0):
    """6×6 images of one bright quarter, which is the label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    x = 0.3 * rng.random((n, 6, 6))
    for i, k in enumerate(y):
        x[i, 3 * (k // 2) :][:3, 3 * (k % 2) :][:, :3] += 0.6
    return x.reshape(n, 36).astype(np.float32), 10 * y + 3  # labels are any numbers


@pytest.fixture(scope="module")
def trained():
    return train_classifier((6, 6), *spots(400), lambda n: None, examples=4_000)


class TestClassifier:
    def test_accuracy_is_measured_on_rows_that_were_not_trained_on(self, trained):
        x, y = spots(200, seed=1)
        assert measure_accuracy(*trained, x, y).accuracy > 0.98

    def test_accuracy_on_shuffled_labels_is_that_of_chance(self, trained):
        x, y = spots(2_000, seed=1)
        wrong = np.random.default_rng(0).permutation(y)
        assert measure_accuracy(*trained, x, wrong).accuracy == pytest.approx(0.25, abs=0.05)

    def test_training_twice_gives_the_same_64_features(self, trained):
        x, y = spots(50, seed=1)
        again, _ = train_classifier((6, 6), *spots(400), lambda n: None, 4_000)
        a = measure_accuracy(*trained, x, y)(x)
        b = measure_accuracy(again, trained[1], x, y)(x)
        assert a.shape == (50, 64) and np.array_equal(a, b)

    def test_rows_without_a_label_are_not_trained_on(self):
        x, y = spots(300)
        y = np.where(np.arange(300) % 3 == 0, -1, y)
        _, names = train_classifier((6, 6), x, y, lambda n: None, examples=100)
        assert names.tolist() == [3, 13, 23, 33]

    @pytest.mark.parametrize("image", [(1, 28), (5, 7, 3), (8, 8), (64, 3)])
    def test_images_of_any_shape_are_accepted(self, image):
        assert Network(image, 3)(torch.zeros(2, int(np.prod(image)))).shape == (2, 3)


def test_only_images_with_enough_rows_of_two_classes_are_classified():
    y = np.arange(40) % 2
    assert can_classify(y, (2, 2))
    assert not can_classify(y, None) and not can_classify(None, (2, 2))
    assert not can_classify(np.zeros(40, int), (2, 2))
    assert not can_classify(np.r_[y, 2], (2, 2)), "one row does not make a class"


def test_principal_axes_are_orthonormal_and_fewer_than_the_rows():
    p = fit_principal(np.random.default_rng(0).random((10, 100)).astype(np.float32))
    assert isinstance(p, Principal) and p.axes.shape == (9, 100)
    assert p.axes @ p.axes.T == pytest.approx(np.eye(9), abs=1e-5)


def test_a_cached_result_is_not_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []

    def make():
        made.append(1)
        return {"x": torch.arange(len(made) + 2)}

    assert read_or_make("kind", ("data", 1), make)["x"].tolist() == [0, 1, 2]
    assert read_or_make("kind", ("data", 1), make)["x"].tolist() == [0, 1, 2]
    assert len(made) == 1
    read_or_make("kind", ("data", 2), make)
    read_or_make("other", ("data", 1), make)
    assert len(made) == 3 and len(list(cache_folder().iterdir())) == 3


def test_a_damaged_cache_file_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read_or_make("kind", 1, lambda: {"x": torch.zeros(3)})
    (path,) = cache_folder().iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert read_or_make("kind", 1, lambda: {"x": torch.ones(3)})["x"].tolist() == [1, 1, 1]
    assert read_or_make("kind", 1, dict)["x"].tolist() == [1, 1, 1]


def test_a_cache_that_cannot_be_written_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert read_or_make("kind", 1, lambda: {"x": torch.ones(1)})["x"].tolist() == [1]
