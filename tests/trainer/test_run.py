"""A run's folder: numbered, locked, and written file by whole file."""

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainer.config import make_recipe
from trainer.errors import RunFolderError, TrainerError, explain_write_errors
from trainer.run import Run, last_run, new_run, replacing, write_text

RECIPE = make_recipe({"name": "small", "data": {"source": "gaussian"}})


def test_a_new_run_takes_the_next_number_and_remembers_its_recipe(tmp_path):
    (tmp_path / "small/10").mkdir(parents=True)
    (tmp_path / "small/notes").mkdir()
    run = new_run(tmp_path, RECIPE)
    assert run.folder.name == "11" and run.recipe() == RECIPE
    assert last_run(tmp_path, "small") == run


def test_runs_begun_at_one_moment_get_folders_of_their_own(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: new_run(tmp_path, RECIPE), range(40)))
    assert sorted(int(run.folder.name) for run in runs) == list(range(1, 41))
    assert all(run.recipe() == RECIPE for run in runs)


def test_there_is_no_last_run_of_nothing(tmp_path):
    with pytest.raises(RunFolderError, match="no run of small"):
        last_run(tmp_path, "small")


def test_one_holder_at_a_time_and_the_next_after_it(tmp_path):
    run = new_run(tmp_path, RECIPE)
    with (
        run.locked(),
        pytest.raises(RunFolderError, match="Another process is training in"),
        Run(run.folder).locked(),
    ):
        pass
    with run.locked():
        pass


def test_the_lock_sweeps_up_halves_of_killed_processes_and_nothing_else(tmp_path):
    run = new_run(tmp_path, RECIPE)
    halves = (".checkpoint.safetensors.1", ".losses.csv.2", ".tmpD3znWq")
    for name in (*halves, ".samples.png.3", "checkpoint.old"):
        (run.folder / name).touch()
    with run.locked():
        names = {p.name for p in run.folder.iterdir()}
    assert names == {".lock", ".samples.png.3", "checkpoint.old", "recipe.json"}


def test_a_block_that_fails_leaves_the_old_file_and_no_half(tmp_path):
    path = tmp_path / "f"
    write_text(path, "old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("half")
        assert path.read_text() == "old"
        raise ZeroDivisionError
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"f": "old"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
    ],
)
def test_failures_to_write_are_one_sentence(error, reason, tmp_path):
    with pytest.raises(RunFolderError) as caught, explain_write_errors(tmp_path):
        raise error
    assert str(caught.value) == f"{tmp_path} cannot be written: {reason}."


def test_other_failures_stay_what_they_are(tmp_path):
    with pytest.raises(KeyError), explain_write_errors(tmp_path):
        raise KeyError("x")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"name": "x"}', '{"name": "x", "data": 3}'])
def test_a_folder_with_a_broken_recipe_is_refused(text, tmp_path):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(TrainerError):
        Run(tmp_path).recipe()
