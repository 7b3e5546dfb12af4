"""Feeds: every training row once an epoch, no other row ever, and no memory of what was asked."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from localmoments.columns import Normaliser
from trainer import batches
from trainer.batches import DiskFeed, Feed, MemoryFeed, derive_seed, make_feed
from trainer.data.arrays import open_npy
from trainer.data.sources import ArraySource, Source

Maker = Callable[..., Feed]

ROWS, DIMS, BATCH = 1000, 3, 32
UNITS = Normaliser(np.array([10.0, 0.0, -1.0]), np.array([2.0, 1.0, 4.0]))


def numbered() -> NDArray[np.float64]:
    """Row i holds i in its first column, so that a row tells where it came from."""
    x = np.random.default_rng(0).standard_normal((ROWS, DIMS))
    x[:, 0] = np.arange(ROWS)
    return x


@pytest.fixture
def train() -> NDArray[np.int64]:
    """All rows but every seventh, and but a whole stretch of them."""
    index = np.arange(ROWS, dtype=np.int64)
    kept: NDArray[np.int64] = index[(index % 7 != 0) & ((index < 300) | (index >= 420))]
    return kept


@pytest.fixture(params=["array", "file"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "array":
        return ArraySource(numbered())
    np.save(tmp_path / "x.npy", numbered())
    return open_npy(tmp_path / "x.npy")[0]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 50 rows, so that a thousand rows are as many blocks as a large file's."""
    monkeypatch.setattr(batches, "BLOCK_BYTES", 50 * DIMS * 4)


def disk_feed(source: Source, train: NDArray[np.int64], seed: int = 0) -> DiskFeed:
    """Chunks of four blocks."""
    return DiskFeed(source, train, UNITS, BATCH, seed, chunk_bytes=4 * 50 * DIMS * 4)


def memory_feed(source: Source, train: NDArray[np.int64], seed: int = 0) -> MemoryFeed:
    rows = torch.from_numpy(UNITS.to_model(source.take(train)))
    return MemoryFeed(rows, BATCH, seed)


def epoch(feed: Feed, number: int) -> list[torch.Tensor]:
    n = feed.steps_per_epoch
    return [feed.batch(step) for step in range(number * n, (number + 1) * n)]


def origins(rows: list[torch.Tensor]) -> list[int]:
    """The numbers of the source's rows, in the order that they came."""
    return [round(float(v)) for v in UNITS.to_user(torch.cat(rows).numpy())[:, 0]]


def test_an_epoch_from_memory_visits_every_training_row_once(
    source: Source, train: NDArray[np.int64]
) -> None:
    feed = memory_feed(source, train)
    for number in (0, 1, 5):
        assert sorted(origins(epoch(feed, number))) == train.tolist()


@pytest.mark.usefixtures("small_blocks")
def test_an_epoch_from_disk_visits_training_rows_at_most_once_and_skips_few(
    source: Source, train: NDArray[np.int64]
) -> None:
    """At most one short batch a chunk pushes a batch out of the epoch's end."""
    feed = disk_feed(source, train)
    chunks = 5
    assert feed.steps_per_epoch == -(-len(train) // BATCH)
    left_out = []
    for number in range(6):
        seen = origins(epoch(feed, number))
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(train.tolist())
        assert len(seen) >= len(train) - chunks * BATCH
        left_out.append(set(train.tolist()) - set(seen))
    assert not set.intersection(*left_out)  # what one epoch leaves out, another has


@pytest.mark.usefixtures("small_blocks")
def test_rows_from_disk_are_the_normalised_rows_of_the_source(
    source: Source, train: NDArray[np.int64]
) -> None:
    expected = UNITS.to_model(numbered())
    rows = torch.cat(epoch(disk_feed(source, train), 0))
    assert rows.dtype == torch.float32
    assert np.array_equal(rows.numpy(), expected[origins([rows])])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("make", [memory_feed, disk_feed])
def test_a_batch_is_a_pure_function_of_its_step(
    source: Source, train: NDArray[np.int64], make: Maker
) -> None:
    feed = make(source, train)
    steps = [*range(3 * feed.steps_per_epoch)]
    in_order = [feed.batch(step) for step in steps]
    for step in np.random.default_rng(1).permutation(steps)[:30]:
        assert torch.equal(feed.batch(int(step)), in_order[step])
    resumed = make(source, train)
    for step in steps[40:]:
        assert torch.equal(resumed.batch(step), in_order[step])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("make", [memory_feed, disk_feed])
def test_every_epoch_and_seed_has_a_different_order(
    source: Source, train: NDArray[np.int64], make: Maker
) -> None:
    first = origins(epoch(make(source, train), 0))
    assert first != sorted(first)
    assert origins(epoch(make(source, train), 1)) != first
    assert origins(epoch(make(source, train, 1), 0)) != first


@pytest.mark.usefixtures("small_blocks")
def test_a_disk_batch_mixes_rows_from_far_apart(train: NDArray[np.int64]) -> None:
    batch = origins([disk_feed(ArraySource(numbered()), train).batch(0)])
    assert len({row // 50 for row in batch}) >= 3  # of the four blocks of its chunk


def test_only_the_last_batch_of_an_epoch_is_smaller_than_the_batch_size() -> None:
    feed = MemoryFeed(torch.randn(70, 2), 32, 0)
    assert [len(b) for b in epoch(feed, 0)] == [32, 32, 6]
    assert [len(b) for b in epoch(MemoryFeed(torch.randn(5, 2), 32, 0), 0)] == [5]


def test_the_feed_is_chosen_by_the_memory_limit(train: NDArray[np.int64]) -> None:
    source = ArraySource(numbered())
    needed = len(train) * DIMS * 4

    def chosen(limit: int) -> Feed:
        return make_feed(source, train, UNITS, batch=BATCH, seed=0, memory_limit=limit)

    assert isinstance(chosen(needed), MemoryFeed)
    assert isinstance(chosen(needed - 1), DiskFeed)


def test_seeds_differ_for_every_purpose_and_count() -> None:
    drawn = {
        derive_seed(seed, purpose, count)
        for seed in range(5)
        for purpose in ("epoch", "weights", "noise 0", "noise 1", "validation")
        for count in range(100)
    }
    assert len(drawn) == 5 * 5 * 100
    assert all(0 <= seed < 2**32 for seed in drawn)
    assert derive_seed(0, "epoch", 3) == derive_seed(0, "epoch", 3)
