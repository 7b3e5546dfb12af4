"""Data larger than the memory limit is copied to disk once, completely or not at all."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainer.data import ArraySource, DataOptions, NpySource, load
from trainer.errors import DataError, RunFolderError

ROOT = Path(__file__).parents[3]


def all_rows(dataset):
    return dataset.source.read(0, dataset.rows)


def test_staged_rows_equal_rows_in_memory(tmp_path, write_streamed, whole_numbers):
    path, staging = str(write_streamed(tmp_path, whole_numbers)), tmp_path / "staging"
    small = load(DataOptions(path))
    limit = small.source.read(0, 2).nbytes
    large = load(DataOptions(path, memory_limit=limit), staging)
    assert isinstance(small.source, ArraySource) and isinstance(large.source, NpySource)
    np.testing.assert_array_equal(all_rows(large), all_rows(small))
    assert (large.features, large.image, large.dims) == (small.features, small.image, small.dims)
    assert sorted(p.suffix for p in staging.iterdir()) == [".json", ".npy"]


def test_without_a_staging_folder_no_file_remains(
    tmp_path, write_streamed, whole_numbers, monkeypatch
):
    path = str(write_streamed(tmp_path, whole_numbers))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    large = load(DataOptions(path, memory_limit=100))
    np.testing.assert_array_equal(all_rows(large), whole_numbers)
    assert not list((tmp_path / "temporary").iterdir())


def test_a_large_npy_file_is_read_in_place(tmp_path, whole_numbers):
    np.save(tmp_path / "a.npy", whole_numbers)
    options = DataOptions(str(tmp_path / "a.npy"), memory_limit=100, rows=20)
    large = load(options, tmp_path / "staging")
    assert isinstance(large.source, NpySource) and not (tmp_path / "staging").exists()
    np.testing.assert_array_equal(all_rows(large), whole_numbers[:20])


def test_missing_values_are_handled_equally_in_memory_and_on_disk(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 3))
    x[rng.random(x.shape) < 0.2] = np.nan
    lines = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in x]
    (tmp_path / "t.csv").write_text("a,b,c\n" + "\n".join(lines))
    path, filled = str(tmp_path / "t.csv"), np.where(np.isnan(x), np.nanmean(x, 0), x)
    wanted = {"drop": x[~np.isnan(x).any(1)], "mean": filled}
    for missing in ("drop", "mean", "drop"):  # made, made, then found
        small = load(DataOptions(path, missing=missing))
        large = load(DataOptions(path, missing=missing, memory_limit=500), tmp_path / "s")
        np.testing.assert_array_equal(all_rows(large), all_rows(small))
        np.testing.assert_allclose(all_rows(small), wanted[missing], rtol=1e-12)
        assert large.notes == small.notes


def test_a_staged_file_is_reused_until_its_source_or_options_change(tmp_path, whole_numbers):
    np.savez(tmp_path / "a.npz", x=whole_numbers)
    options = DataOptions(str(tmp_path / "a.npz"), memory_limit=100)
    staging = tmp_path / "staging"
    load(options, staging)
    (first,) = staging.glob("*.npy")
    made = first.stat().st_mtime_ns
    load(options, staging)
    assert first.stat().st_mtime_ns == made and len(list(staging.glob("*.npy"))) == 1
    np.savez(tmp_path / "a.npz", x=whole_numbers + 1)
    np.testing.assert_array_equal(all_rows(load(options, staging)), whole_numbers + 1)
    load(DataOptions(str(tmp_path / "a.npz"), memory_limit=100, rows=30), staging)
    assert len(list(staging.glob("*.npy"))) == 3


def test_a_source_that_fails_halfway_leaves_no_file(tmp_path):
    rows = "1,2\n" * 1_500_000
    (tmp_path / "t.csv").write_text("a,b\n" + rows + "1,oops\n")
    with pytest.raises(
        DataError, match=r"t\.csv has the value 'oops' in line 1500002 of column 'b'"
    ):
        load(DataOptions(str(tmp_path / "t.csv"), memory_limit=1000), tmp_path / "s")
    assert not list((tmp_path / "s").iterdir())


def test_an_incomplete_file_of_a_killed_run_is_replaced(tmp_path, whole_numbers):
    np.savez(tmp_path / "a.npz", x=whole_numbers)
    options = DataOptions(str(tmp_path / "a.npz"), memory_limit=100)
    load(options, tmp_path / "s")
    (made,) = (tmp_path / "s").glob("*.npy")
    made.replace(made.with_suffix(".part"))
    np.testing.assert_array_equal(all_rows(load(options, tmp_path / "s")), whole_numbers)
    assert not list((tmp_path / "s").glob("*.part"))


def test_a_staging_folder_that_cannot_be_written_is_named(tmp_path, whole_numbers):
    np.savez(tmp_path / "a.npz", x=whole_numbers)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunFolderError, match=r"file cannot be written"):
        load(DataOptions(str(tmp_path / "a.npz"), memory_limit=100), tmp_path / "file")


LOAD = """
import resource, signal, sys
from pathlib import Path
from trainer.data import DataOptions, load
from trainer.errors import RunFolderError
path, staging, largest = sys.argv[1:]
if largest != "any":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest), int(largest)))
print("ready", flush=True)
try:
    dataset = load(DataOptions(path, memory_limit=100), Path(staging))
    print(dataset.source.read(0, dataset.rows).sum())
except RunFolderError as error:
    print(error)
"""


def start_load(path, staging, largest="any"):
    """Start a process that loads the data; it has printed "ready" when this returns."""
    command = [sys.executable, "-c", LOAD, str(path), str(staging), largest]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert child.stdout.readline() == "ready\n"
    return child


def output_of(child):
    return child.communicate(timeout=60)[0].strip()


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path):
    """A limit on the size of files takes the place of a full disk."""
    np.savez(tmp_path / "a.npz", x=np.ones((1000, 10)))
    message = output_of(start_load(tmp_path / "a.npz", tmp_path / "s", largest="4096"))
    assert message == f"{tmp_path / 's'} cannot be written: {os.strerror(errno.EFBIG)}."
    assert not list((tmp_path / "s").iterdir())


def test_two_runs_at_the_same_time_write_one_file(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.ones((100_000, 10)))
    children = [start_load(tmp_path / "a.npz", tmp_path / "s") for _ in range(2)]
    assert [output_of(child) for child in children] == ["1000000.0"] * 2
    assert len(list((tmp_path / "s").glob("*.npy"))) == 1


def test_a_run_waits_for_another_that_writes_the_same_file_and_uses_it(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((30, 10)))
    load(DataOptions(str(tmp_path / "a.npz"), memory_limit=100), tmp_path / "s")
    (made,) = (tmp_path / "s").glob("*.npy")
    part = made.rename(made.with_suffix(".part"))
    with part.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        child = start_load(tmp_path / "a.npz", tmp_path / "s")
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        part.rename(made)
        inode = made.stat().st_ino
    assert output_of(child) == "300.0" and made.stat().st_ino == inode
