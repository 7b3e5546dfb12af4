"""Shares, entropy and changes of class; a classifier that learns what can be learnt."""

import numpy as np
import pytest
import torch

from trainer.evaluate.classes import changes, entropy, shares
from trainer.evaluate.classifier import Network, can_classify, judged, train


def test_shares_count_every_class_also_those_that_never_come():
    assert shares(np.array([0, 0, 2, 2]), 4).tolist() == [0.5, 0, 0.5, 0]


@pytest.mark.parametrize("count", [2, 10])
def test_entropy_is_one_for_equal_classes_and_zero_for_one(count):
    assert entropy(np.arange(30 * count) % count, count) == pytest.approx(1)
    assert entropy(np.full(30, 1), count) == 0


def test_entropy_of_two_of_four_classes_is_a_half():
    assert entropy(np.array([0, 1] * 10), 4) == pytest.approx(0.5)


def test_changes_are_counted_along_the_chain_and_not_across_walkers():
    still = np.tile([0, 1, 2], (10, 1))  # (T, W)
    assert changes(still) == 0
    assert changes(still.T.repeat(2, axis=0)[:6]) == pytest.approx(2 / 5)


def spots(n, seed=0):
    """6×6 images of one bright quarter, which is the label."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    x = 0.3 * rng.random((n, 6, 6))
    for i, k in enumerate(y):
        x[i, 3 * (k // 2) :][:3, 3 * (k % 2) :][:, :3] += 0.6
    return x.reshape(n, 36).astype(np.float32), 10 * y + 3  # labels are any numbers


@pytest.fixture(scope="module")
def learnt():
    return train((6, 6), *spots(400), lambda n: None, examples=4_000)


class TestClassifier:
    def test_learns_and_says_how_well_on_rows_it_never_saw(self, learnt):
        x, y = spots(200, seed=1)
        assert judged(*learnt, x, y).accuracy > 0.98

    def test_its_accuracy_on_shuffled_labels_is_that_of_chance(self, learnt):
        x, y = spots(2_000, seed=1)
        wrong = np.random.default_rng(0).permutation(y)
        assert judged(*learnt, x, wrong).accuracy == pytest.approx(0.25, abs=0.05)

    def test_gives_sixty_four_features_that_repeat(self, learnt):
        x, y = spots(50, seed=1)
        again, _ = train((6, 6), *spots(400), lambda n: None, 4_000)
        a = judged(*learnt, x, y)(x)
        b = judged(again, learnt[1], x, y)(x)
        assert a.shape == (50, 64) and np.array_equal(a, b)

    def test_rows_without_a_label_are_left_out(self):
        x, y = spots(300)
        y = np.where(np.arange(300) % 3 == 0, -1, y)
        _, names = train((6, 6), x, y, lambda n: None, examples=100)
        assert names.tolist() == [3, 13, 23, 33]

    @pytest.mark.parametrize("image", [(1, 28), (5, 7, 3), (8, 8), (64, 3)])
    def test_takes_images_of_any_shape(self, image):
        assert Network(image, 3)(torch.zeros(2, int(np.prod(image)))).shape == (2, 3)


def test_only_images_with_enough_rows_of_two_classes_are_classified():
    y = np.arange(40) % 2
    assert can_classify(y, (2, 2))
    assert not can_classify(y, None) and not can_classify(None, (2, 2))
    assert not can_classify(np.zeros(40, int), (2, 2))
    assert not can_classify(np.r_[y, 2], (2, 2)), "one row is no class"
