"""A run that was killed, however often, ends as if nothing had happened, bit for bit."""

import contextlib
import random
import shutil
import signal
import time
from pathlib import Path

import pytest


def kill_while_training(shell, until, folder, words, run, moments, state_of):
    """Start, wait for a checkpoint that was not there before, wait a moment longer, kill."""
    seen = 0
    for moment in moments:
        process = shell.start(folder, *words)
        file = run / "checkpoint.safetensors"
        until(lambda: file.exists() and file.stat().st_mtime_ns != seen, process)  # noqa: B023
        time.sleep(moment)
        err = shell.kill(process)
        assert process.returncode == -signal.SIGKILL, err
        if state_of(run)[0].finished:  # a fast machine: one kill will have to do
            assert seen, "the run was too short to be killed"
            return
        seen = file.stat().st_mtime_ns
        words = ["fit", "--resume", run]


@pytest.fixture(scope="module")
def long(setting):
    """Some seconds of training, and a checkpoint every few steps."""
    return setting("training.epochs=300", "training.batch=64", "model.hidden=[16]",
                   "sampling.start_points=9", "training.checkpoint_seconds=0.05")  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(train, long, table, tmp_path_factory):
    """The run of those settings that nobody stopped."""
    folder = tmp_path_factory.mktemp("undisturbed")
    table(folder / "table.csv")
    return train(folder, "table.csv", *long)


def same_run(a, b, saved):
    assert saved(a) == saved(b)  # the state with its loss history, and every tensor's bytes
    assert (a / "losses.csv").read_bytes() == (b / "losses.csv").read_bytes()


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_same_weights_and_losses(
    shell, long, table, until, saved, undisturbed, weights, verified, tmp_path
):
    table(tmp_path / "table.csv")
    run, rng = tmp_path / "runs/table/1", random.Random(1)
    moments = [rng.uniform(0, 0.2) for _ in range(3)]
    kill_while_training(shell, until, tmp_path, ["fit", "table.csv", *long], run, moments, saved)
    done = shell.run(tmp_path, "fit", "--resume", run)
    assert done.returncode == 0, done.stderr
    assert f"Resuming {run}." in done.stderr
    same_run(run, undisturbed, saved)
    verified(tmp_path / "models/table/1")
    exported = weights(tmp_path / "models/table/1")
    assert {f"model/{name}": data for name, data in exported.items()} == saved(undisturbed)[1]
    assert [p.name for p in run.glob(".*")] == [".lock"], "half files were not swept up"


def test_a_stacked_cae_killed_in_its_second_stage_ends_with_the_same_weights(
    shell, setting, until, saved, resume, train, tmp_path
):
    words = ["fit", "digits", "--name", "stack", *setting(
        "data.rows=600", "criterion.kind=cae", "criterion.stacked=true", "criterion.sigma=0.5",
        "model.hidden=[32, 16]", "model.unit=sigmoid", "model.blocks=0", "model.tied=true",
        "model.conditioned=false", "training.epochs=90", "training.checkpoint_seconds=0.05",
    )]  # fmt: skip
    run = tmp_path / "runs/stack/1"

    def in_the_second_stage():
        file = run / "checkpoint.safetensors"
        return file.exists() and saved(run)[0].stage == 1 and saved(run)[0].step > 0

    process = shell.start(tmp_path, *words)
    until(in_the_second_stage, process)
    shell.kill(process)
    assert not saved(run)[0].finished
    resume(run)
    same_run(run, train(tmp_path, *words[1:]), saved)
    assert {loss.stage for loss in saved(run)[0].losses} == {0, 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_run_and_a_resumed_run_gives_the_same_result(
    number, shell, long, table, until, saved, undisturbed, resume, tmp_path
):
    table(tmp_path / "table.csv")
    words = ["fit", "table.csv", *long, "--set", "training.checkpoint_seconds=3600"]
    run = tmp_path / "runs/table/1"
    process = shell.start(tmp_path, *words)
    until((run / ".lock").exists, process)
    time.sleep(0.3)
    err = shell.kill(process, number)
    assert process.returncode == 130, err
    state, _ = saved(run)
    assert state.step > 0 and not state.finished
    assert err.splitlines()[-1] == (
        f"Stopped and saved at step {state.step} of 2700. Continue with "
        "localmoments fit --resume runs/table/1"
    )
    with contextlib.chdir(tmp_path):
        resume(run)
    same_run(run, undisturbed, saved)


def test_a_second_process_in_the_same_run_is_refused_and_the_first_continues(
    shell, long, table, until, typed, tmp_path
):
    table(tmp_path / "table.csv")
    first = shell.start(tmp_path, "fit", "table.csv", *long)
    until((tmp_path / "runs/table/1/checkpoint.safetensors").exists, first)
    code, _, err = typed("fit", "--resume", "runs/table/1")
    assert code == 2
    assert err.splitlines()[-1] == "error: Another process is training in runs/table/1."
    assert first.poll() is None
    shell.kill(first)


def test_an_interrupted_export_leaves_no_files(shell, fitted, until, tmp_path):
    process = shell.start(fitted.folder, "export", fitted.run, "--models", tmp_path / "models")
    until(lambda: list(tmp_path.glob("models/table/.new-*/weights.safetensors")), process)
    err = shell.kill(process, signal.SIGTERM)
    assert process.returncode == 130 and err.splitlines()[-1] == "Interrupted."
    assert list(tmp_path.glob("models/**/*")) == []


def test_an_interruption_during_the_import_of_torch_prints_one_line(shell, fitted, until, tmp_path):
    process = shell.start(fitted.folder, "export", fitted.run, "--models", tmp_path / "models")
    until(lambda: "libtorch" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    err = shell.kill(process, signal.SIGTERM)
    assert (process.returncode, err) == (130, "Interrupted.\n")
    assert not (tmp_path / "models").exists()


class TestResumeRefuses:
    """In one sentence, and without touching the run."""

    @pytest.fixture
    def run(self, fitted, tmp_path):
        shutil.copy(fitted.folder / "table.csv", tmp_path)
        shutil.copytree(fitted.run, tmp_path / "runs/table/1")
        return tmp_path / "runs/table/1"

    def test_other_settings_and_names_them(self, run, refused, tiny):
        other = ["--set", "training.epochs=5", "--set", "model.unit=tanh"]
        said = refused("fit", "table.csv", *tiny, *other, "--resume", run)
        assert "(model.unit, training.epochs)" in said

    def test_other_settings_without_a_recipe(self, run, refused):
        said = refused("fit", "--resume", run, "--set", "training.epochs=5")
        assert "was started with other settings (training.epochs)" in said

    def test_nothing_to_resume(self, refused, tmp_path):
        assert "no run of table" in refused("fit", "--name", "table", "--resume")
        (tmp_path / "empty").mkdir()
        assert "empty is not a training run" in refused("fit", "--resume", "empty")
        assert "Name a recipe" in refused("fit", "--resume")

    @pytest.mark.parametrize("part", [0, 7, 1000, -1])
    def test_a_cut_checkpoint(self, run, refused, part):
        file = run / "checkpoint.safetensors"
        file.write_bytes(file.read_bytes()[:part])
        assert "checkpoint.safetensors is not a usable checkpoint" in refused(
            "fit", "--resume", run
        )

    def test_the_checkpoint_of_another_model(self, run, refused):
        recipe = run / "recipe.json"
        recipe.write_text(recipe.read_text().replace("16", "8"))
        assert "does not belong to the recipe" in refused("fit", "--resume", run)

    @pytest.mark.parametrize("command", [("fit", "--resume"), ("export",)])
    def test_data_that_changed_meanwhile(self, run, refused, table, tmp_path, command):
        table(tmp_path / "table.csv", seed=1)
        assert "table.csv has changed since" in refused(*command, run)

    def test_a_broken_recipe(self, run, refused):
        (run / "recipe.json").write_text('{"name": ')
        assert "is not a training run" in refused("fit", "--resume", run)
        (run / "recipe.json").write_text("[1]")
        refused("fit", "--resume", run)
