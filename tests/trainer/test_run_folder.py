"""The folder of a run: numbered, locked, with its recipe."""

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainer.config import make_recipe
from trainer.errors import RunFolderError, TrainerError, explain_write_errors
from trainer.run_folder import RunFolder, new_run, new_run_folder, newest_run, remove_on_error

RECIPE = make_recipe({"name": "small", "data": {"source": "gaussian"}})


def test_a_new_run_takes_the_next_number_and_remembers_its_recipe(tmp_path):
    (tmp_path / "small/10").mkdir(parents=True)
    (tmp_path / "small/notes").mkdir()
    run = new_run(tmp_path, RECIPE)
    assert run.path.name == "11" and run.read_recipe() == RECIPE
    assert newest_run(tmp_path, "small") == run


def test_runs_started_at_the_same_time_get_different_folders(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: new_run(tmp_path, RECIPE), range(40)))
    assert sorted(int(run.path.name) for run in runs) == list(range(1, 41))
    assert all(run.read_recipe() == RECIPE for run in runs)


def test_without_runs_there_is_no_newest_run(tmp_path):
    with pytest.raises(RunFolderError, match="no run of small"):
        newest_run(tmp_path, "small")


def test_a_folder_without_a_recipe_is_not_a_run_to_resume(tmp_path):
    """A process that was killed while it read the data leaves such a folder."""
    run = new_run(tmp_path, RECIPE)
    new_run_folder(tmp_path, "small")
    assert newest_run(tmp_path, "small") == run


@pytest.mark.parametrize("error", [KeyboardInterrupt, RunFolderError])
def test_a_run_that_fails_before_it_has_a_recipe_is_removed(tmp_path, error):
    run = new_run_folder(tmp_path, "small")
    with pytest.raises(error), remove_on_error(run):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_interrupted_later_stays(tmp_path):
    run = new_run(tmp_path, RECIPE)
    with pytest.raises(KeyboardInterrupt), remove_on_error(run):
        raise KeyboardInterrupt
    assert run.read_recipe() == RECIPE


def test_only_one_holder_has_the_lock_at_a_time(tmp_path):
    run = new_run(tmp_path, RECIPE)
    with (
        run.lock(),
        pytest.raises(RunFolderError, match="Another process is training in"),
        RunFolder(run.path).lock(),
    ):
        pass
    with run.lock():
        pass


def test_the_lock_removes_temporary_files_of_killed_processes_and_nothing_else(tmp_path):
    run = new_run(tmp_path, RECIPE)
    halves = (".checkpoint.safetensors.1", ".losses.csv.2", ".tmpD3znWq")
    for name in (*halves, ".samples.png.3", "checkpoint.old"):
        (run.path / name).touch()
    with run.lock():
        names = {p.name for p in run.path.iterdir()}
    assert names == {".lock", ".samples.png.3", "checkpoint.old", "recipe.json"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
    ],
)
def test_a_write_error_is_one_sentence(error, reason, tmp_path):
    with pytest.raises(RunFolderError) as caught, explain_write_errors(tmp_path):
        raise error
    assert str(caught.value) == f"{tmp_path} cannot be written: {reason}."


def test_other_errors_are_not_changed(tmp_path):
    with pytest.raises(KeyError), explain_write_errors(tmp_path):
        raise KeyError("x")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"name": "x"}', '{"name": "x", "data": 3}'])
def test_a_folder_with_a_broken_recipe_is_refused(text, tmp_path):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(TrainerError):
        RunFolder(tmp_path).read_recipe()
