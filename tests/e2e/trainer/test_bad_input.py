"""Whatever is wrong, the command ends with exit code 2, one sentence and nothing half-written."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def rows(n=50, d=3):
    return np.random.default_rng(0).normal(size=(n, d))


def csv(path, x, header="a,b,c"):
    np.savetxt(path, x, delimiter=",", header=header, comments="")
    return path.name


def empty(folder):
    (folder / "x.csv").touch()
    return "x.csv"


def cut_npz(folder):
    np.savez(folder / "x.npz", x=rows())
    whole = (folder / "x.npz").read_bytes()
    (folder / "x.npz").write_bytes(whole[: len(whole) // 2])
    return "x.npz"


def nan_in_csv(folder):
    x = rows()
    x[7, 1] = np.nan
    return csv(folder / "x.csv", x)


def nan_in_npy(folder):
    x = rows()
    x[7, 1] = np.nan
    np.save(folder / "x.npy", x)
    return "x.npy"


def one_row(folder):
    return csv(folder / "x.csv", rows(1))


def text_column(folder):
    lines = ["a,b,town", *(f"{i},{i * i},Rome" for i in range(50))]
    (folder / "x.csv").write_text("\n".join(lines))
    return "x.csv"


def nothing_there(folder):
    return "x.csv"


BAD = {
    empty: "x.csv is empty",
    cut_npz: "x.npz",
    nan_in_csv: "b",
    nan_in_npy: "x.npy",
    one_row: "one row",
    text_column: "town",
    nothing_there: "x.csv",
}


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
@pytest.mark.parametrize("command", ["fit", "fit with a recipe", "data"])
def test_bad_data_is_refused_with_its_name(make, command, refused, tmp_path):
    (tmp_path / "r.toml").write_text("[model]\nhidden = [8]\n")
    source = make(tmp_path)
    words = ["fit", "r.toml", "--data", source] if " " in command else [command, source]
    assert BAD[make] in refused(*words)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["r.toml", "--set", "model.dims=4"], "x.csv has 3 columns, but the recipe has model.dims"),
        (["r.toml", "--set", "model.hiden=[8]"], "model.hiden"),
        (["r.toml", "--set", "modell.hidden=[8]"], "modell"),
        (["r.toml", "--set", "criterion.kind=vae"], "criterion.kind"),
        (["r.toml", "--set", "training.epochs=many"], "training.epochs"),
        (["r.toml", "--set", "training.epochs=0"], "training.epochs"),
        (["r.toml", "--set", "training.epochs"], "key=value"),
        (["r.toml", "--set", "sampling.scales.gibs=1.0"], "sampling.scales"),
        (["r.toml", "--set", "criterion.loss=cross-entropy"], "cross-entropy"),
        (["r.toml", "--name", "My Model"], "My Model"),
        (["r.toml", "--name", "../up"], "../up"),
        (["missing.toml"], "missing.toml"),
        (["broken.toml"], "broken.toml"),
        (["mnist-dea"], "mnist-dea"),
        ([], "Name a recipe"),
    ],
)
def test_an_invalid_recipe_is_refused_with_its_key(words, part, refused, tmp_path):
    csv(tmp_path / "x.csv", rows())
    (tmp_path / "r.toml").write_text(
        '[data]\nsource = "x.csv"\n[model]\nhidden = [8]\n[training]\nepochs = 1\n'
    )
    (tmp_path / "broken.toml").write_text("[model\nhidden = ")
    assert part in refused("fit", *words)


def test_a_file_cannot_contain_runs(refused, tmp_path, tiny):
    (tmp_path / "file").touch()
    csv(tmp_path / "x.csv", rows())
    said = refused("fit", "x.csv", *tiny, "--runs", "file/runs")
    assert said == "error: file/runs cannot be written: Not a directory."


@pytest.mark.parametrize("models", ["file/models", "taken"])
def test_a_models_folder_that_cannot_be_written_is_refused_before_training(
    models, refused, tmp_path, tiny
):
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/x").write_text("not a model")
    csv(tmp_path / "x.csv", rows())
    said = refused("fit", "x.csv", *tiny, "--models", models)
    assert said.startswith(f"error: {models} cannot be written: ")
    assert not (tmp_path / "runs").exists()
    assert (tmp_path / "taken/x").read_text() == "not a model"


def test_a_loss_that_turns_nan_keeps_the_last_good_checkpoint_and_exports_nothing(
    refused, saved, setting, tiny, tmp_path
):
    csv(tmp_path / "x.csv", rows())
    wild = setting("training.learning_rate=1e30", "training.epochs=400",
                   "training.checkpoint_seconds=0.000001")  # fmt: skip
    said = refused("fit", "x.csv", *tiny, *wild)
    assert "training.learning_rate" in said and "in runs/x/1" in said
    state, tensors = saved(tmp_path / "runs/x/1")
    assert state.step > 0 and not state.finished
    for name, data in tensors.items():
        if name.startswith("model/"):
            assert np.isfinite(np.frombuffer(data, np.float32)).all()


class TestDisk:
    """A disk that fills up, or may not be written."""

    @pytest.fixture
    def source(self, tmp_path):
        return csv(tmp_path / "x.csv", rows())

    def test_full_before_the_first_checkpoint(self, disk, refused, source, tiny):
        full = disk("size=8k")
        said = refused("fit", source, *tiny, "--runs", full)
        assert said == f"error: {full}/x/1 cannot be written: the disk is full."
        assert {p.name for p in (full / "x/1").iterdir()} == {".lock", "recipe.json"}

    def test_full_when_a_later_checkpoint_is_written_keeps_the_one_before(
        self, disk, refused, source, tiny, setting, saved
    ):
        full = disk("size=72k")  # room for one checkpoint, not for the next beside it
        often = setting("training.checkpoint_seconds=0.001", "training.epochs=50")
        said = refused("fit", source, *tiny, *often, "--runs", full)
        assert said == f"error: {full}/x/1 cannot be written: the disk is full."
        state, _ = saved(full / "x/1")
        assert state.step > 0 and not state.finished

    def test_full_when_plots_are_copied_into_the_run_is_only_a_note(
        self, disk, typed, source, tiny, verified, tmp_path
    ):
        full = disk("size=84k")
        code, _, err = typed("fit", source, *tiny, "--runs", full)
        assert code == 0 and f"{full}/x/1 cannot be written: the disk is full." in err
        verified(tmp_path / "models/x/1")
        assert not list((full / "x/1").glob(".*.png*"))

    @pytest.mark.parametrize("size", ["8k", "16k"])  # weights fail; then a graph
    def test_full_when_the_artefact_is_written(self, disk, refused, source, tiny, size):
        full = disk(f"size={size}")
        said = refused("fit", source, *tiny, "--models", full)
        assert said == f"error: {full} cannot be written: the disk is full."
        assert list(full.iterdir()) == []

    def test_read_only_runs_and_models(self, disk, refused, typed, source, fitted, tiny):
        place = disk("size=10m")
        subprocess.run(["cp", "-r", fitted.run, place / "run"], check=True)
        subprocess.run(["cp", fitted.folder / "table.csv", "."], check=True)
        disk("remount,ro")
        reason = "cannot be written: Read-only file system."
        assert refused("fit", source, *tiny, "--runs", place) == f"error: {place} {reason}"
        assert refused("fit", "--resume", place / "run") == f"error: {place / 'run'} {reason}"
        said = refused("fit", source, *tiny, "--models", place)
        assert said == f"error: {place} {reason}"


class TestEvaluateAndExport:
    def test_a_missing_artefact_or_run(self, refused):
        assert "There is no model 'nothing'" in refused("evaluate", "nothing")
        assert "nothing is not a training run" in refused("export", "nothing")

    def test_data_of_another_width(self, refused, fitted, tmp_path):
        csv(tmp_path / "x.csv", rows(50, 4), "height,width,depth,more")
        said = refused("evaluate", fitted.artefact, "--data", "x.csv")
        assert said == "error: x.csv has 4 columns, but table@1 was made for 3."

    def test_data_that_moved_away(self, refused, fitted):
        assert "table.csv" in refused("evaluate", fitted.artefact)

    def test_a_run_without_a_checkpoint(self, refused, fitted, tmp_path):
        (tmp_path / "run").mkdir()
        (tmp_path / "run/recipe.json").write_bytes((fitted.run / "recipe.json").read_bytes())
        assert "run has no checkpoint yet" in refused("export", "run")


@pytest.mark.parametrize("words", [["fitt"], [], ["fit", "--epochs", "3"], ["export"], ["data"]])
def test_an_unknown_command_or_option_ends_with_usage_and_exit_code_2(words, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "trainer", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("usage: ") and "Traceback" not in done.stderr
    assert list(Path(tmp_path).iterdir()) == []
