"""Nearest rows, copies, and the centres of k-means."""

import numpy as np
import pytest

from trainer.evaluate.neighbours import (
    copy_figures,
    find_neighbours,
    k_means,
    nearest,
    squared_distances,
)


def cloud(n, d=8, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.mark.parametrize("block", [1, 64, 2**22])
def test_nearest_rows_are_those_of_brute_force(block, monkeypatch):
    monkeypatch.setattr("trainer.evaluate.neighbours.BLOCK", block)
    a, b = cloud(40), cloud(60, seed=1)
    d = np.linalg.norm(a[:, None] - b, axis=2)
    index, distance = nearest(a, b, 3)
    assert np.array_equal(index, np.argsort(d, axis=1)[:, :3])
    assert distance == pytest.approx(np.sort(d, axis=1)[:, :3], rel=1e-6)


def test_a_row_is_at_no_distance_from_itself_however_far_from_the_origin():
    a = cloud(50) + 1000
    assert (nearest(a, a)[1] == 0).all()
    assert all((d >= 0).all() for _, d in squared_distances(a, a))


class TestCopies:
    train = cloud(500)
    held_out = find_neighbours(cloud(300, seed=1), train)

    def test_new_rows_of_the_same_law_are_as_far_as_held_out_rows(self):
        found = copy_figures(find_neighbours(cloud(300, seed=2), self.train), self.held_out)
        assert found["samples"]["50 %"] == pytest.approx(found["held-out rows"]["50 %"], rel=0.1)
        assert found["samples nearer than 99 % of held-out rows"] < 0.05
        assert found["samples that look like copies"] < 0.02

    def test_training_rows_with_a_little_noise_are_recognised_as_copies(self):
        copied = self.train[:300] + 0.01 * cloud(300, seed=3)
        found = copy_figures(find_neighbours(copied, self.train), self.held_out)
        assert found["samples nearer than 99 % of held-out rows"] > 0.99
        assert found["samples that look like copies"] > 0.99
        assert found["held-out rows that look like copies"] < 0.02


class TestKMeans:
    def test_centres_are_found_in_well_separated_groups(self):
        middles = 100 * np.eye(8, dtype=np.float32)[:5]
        rows = np.concatenate([m + 0.1 * cloud(40, seed=i) for i, m in enumerate(middles)])
        centres = k_means(rows, 40)
        assert nearest(middles, centres)[1].max() < 1

    def test_rounds_bring_rows_nearer_to_their_centres(self):
        rows = cloud(400)
        spread = [nearest(rows, k_means(rows, 50, rounds))[1].mean() for rounds in (0, 1, 3)]
        assert spread[0] > spread[1] > spread[2]

    def test_centres_are_means_of_several_rows_and_repeat(self):
        rows = cloud(400)
        centres = k_means(rows, 10_000)
        assert len(centres) == 80 and np.array_equal(centres, k_means(rows, 10_000))
        assert centres.std() < rows.std()
