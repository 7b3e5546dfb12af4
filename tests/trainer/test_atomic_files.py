"""Files are replaced in one step, and a version of a model appears whole under a new number."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from trainer.atomic_files import new_version, replace_file, write_text
from trainer.errors import ExportError, RunFolderError

WRITER = """
import sys
from pathlib import Path
from trainer.atomic_files import new_version
while True:
    with new_version(Path(sys.argv[1]), "m") as (folder, version):
        for i in range(20):
            (folder / f"{i}").write_text(version * 5000)
        print(version, flush=True)
"""


def test_a_failing_block_leaves_the_old_file_and_no_temporary_file(tmp_path):
    path = tmp_path / "f"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "old"
        raise ZeroDivisionError
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"f": "old"}


def make(models, text="x"):
    with new_version(models, "m") as (folder, version):
        (folder / "file").write_text(text)
    return models / "m" / version


def test_versions_count_up_and_old_ones_do_not_change(tmp_path):
    first, second = make(tmp_path, "first"), make(tmp_path, "second")
    assert (first.name, second.name) == ("1", "2")
    assert (first / "file").read_text() == "first"
    assert [p.name for p in sorted((tmp_path / "m").iterdir())] == ["1", "2"]


def test_the_next_version_follows_the_highest_number_in_the_folder(tmp_path):
    for name in ("9", "10", "notes", ".new-left"):
        (tmp_path / "m" / name).mkdir(parents=True)
    assert make(tmp_path).name == "11"
    assert (tmp_path / "m/.new-left").is_dir()


def test_a_failing_block_leaves_no_version(tmp_path):
    with pytest.raises(ZeroDivisionError), new_version(tmp_path, "m") as (folder, _):
        (folder / "half").write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_version_of_another_process_is_never_overwritten(tmp_path):
    sentence = "Another process has just created .*m/1"
    with pytest.raises(ExportError, match=sentence), new_version(tmp_path, "m") as (folder, _):
        (folder / "file").write_text("late")
        early = make(tmp_path, "early")
    assert (early / "file").read_text() == "early"
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["1"]


def test_a_file_in_place_of_the_folder_gives_one_sentence(tmp_path):
    (tmp_path / "m").write_text("mine")
    with pytest.raises(RunFolderError, match=r"cannot be written: File exists\."):
        make(tmp_path)
    assert (tmp_path / "m").read_text() == "mine"


def test_versions_can_be_read_by_a_service_of_another_user(tmp_path):
    folder = make(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "file").stat().st_mode & 0o777 == 0o644


def test_a_writer_killed_at_random_moments_leaves_only_whole_versions(tmp_path):
    rng = random.Random(0)
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(2):  # it has published the first version when it prints the second
            assert writer.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    versions = [p for p in (tmp_path / "m").iterdir() if p.name.isdecimal()]
    assert len(versions) >= 3
    for version in versions:
        assert {p.name for p in version.iterdir()} == {str(i) for i in range(20)}
        assert {p.read_text() for p in version.iterdir()} == {version.name * 5000}
