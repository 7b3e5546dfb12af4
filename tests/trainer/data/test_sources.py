"""All ways to read rows return the same rows."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainer.data import ArraySource, DataOptions, NpySource, load
from trainer.data.arrays import open_npy
from trainer.data.sources import blocks
from trainer.errors import DataError


@pytest.fixture
def pair(tmp_path):
    x = np.random.default_rng(0).normal(size=(101, 7)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    return ArraySource(x), open_npy(tmp_path / "x.npy")[0]


def test_reading_by_blocks_equals_reading_whole_in_every_format(tmp_path, write, whole_numbers):
    source = load(DataOptions(str(write(tmp_path, whole_numbers)))).source
    parts = [block for _, block in blocks(source, values=17)]
    np.testing.assert_array_equal(np.concatenate(parts), whole_numbers)
    assert len(parts) > 10


def test_taking_rows_from_disk_equals_taking_them_from_memory(pair):
    memory, disk = pair
    for index in ([5, 3, 3, 100, 0, 4], [], [-1, 2], range(101), [7]):
        index = np.array(index, np.int64)
        np.testing.assert_array_equal(disk.take(index), memory.take(index))


@given(data=st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_npy_file_returns_any_array_that_was_saved(tmp_path, data):
    kind = st.sampled_from(["<f4", ">f4", "<f8", "<f2", "u1", ">i2", "<i8", "?"]).map(np.dtype)
    shape = hnp.array_shapes(min_dims=1, max_dims=4, max_side=6)
    x = data.draw(hnp.arrays(kind, shape))
    np.save(tmp_path / "x.npy", x)
    source = open_npy(tmp_path / "x.npy")[0]
    flat = x.reshape(len(x), -1)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(x)), st.integers(0, len(x)))))
    index = np.array(data.draw(st.lists(st.integers(0, len(x) - 1))), np.int64)
    np.testing.assert_array_equal(source.read(start, stop), flat[start:stop])
    np.testing.assert_array_equal(source.take(index), flat[index])
    assert source.dtype.isnative


def test_rows_out_of_range_are_refused(pair):
    for source in pair:
        with pytest.raises(IndexError):
            source.take(np.array([101]))


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path, pair):
    _, disk = pair
    os.truncate(tmp_path / "x.npy", 200)
    with pytest.raises(DataError, match=r"x\.npy became shorter"):
        disk.read(0, 101)


def test_a_source_closes_its_file(tmp_path, pair):
    count_open = lambda: len(os.listdir("/dev/fd"))  # noqa: E731
    before = count_open()
    source = NpySource(tmp_path / "x.npy", 128, 1, 1, np.dtype("f4"))
    assert count_open() == before + 1
    del source
    assert count_open() == before


def test_reading_from_disk_needs_little_memory(tmp_path):
    """A memory map would keep every page it touched: 200 MB here."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "big.npy"
    header = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(50_000, 1000))
    del header
    source = open_npy(path)[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(float(block[0, 0]) for _, block in blocks(source)) == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
