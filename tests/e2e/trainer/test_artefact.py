"""An artefact appears whole or not at all, and no version is ever written over."""

import shutil
import signal

import pytest

from localmoments.model import Model

PICTURES = {"samples.png", "mixing.png", "distances.png"}  # of a table whose chains keep in bounds


def snapshot(folder):
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}


def versions(models):
    return sorted(p.name for p in models.glob("table/*") if not p.name.startswith("."))


@pytest.mark.parametrize("file", ["weights.safetensors", "reconstructions.png"])
def test_a_killed_export_leaves_no_version(file, shell, fitted, until, tmp_path):
    """Kill it after it has written the first file, and the first plot, of the new version."""
    models = tmp_path / "models"
    process = shell.start(fitted.folder, "export", fitted.run, "--models", models)
    until(lambda: list(models.glob(f"table/.new-*/{file}")), process)
    shell.kill(process)
    assert process.returncode == -signal.SIGKILL, "the export ended before it was killed"
    assert versions(models) == []


@pytest.mark.slow
def test_simultaneous_exports_after_a_killed_one_do_not_collide(
    shell, fitted, verified, weights, saved, tmp_path
):
    """Both give the run's weights; whoever comes second takes another number or says so."""
    models = tmp_path / "models"
    shutil.copytree(fitted.artefact, models / "table/1")
    shutil.copytree(fitted.artefact, models / "table/.new-killed")
    (models / "table/.new-killed/manifest.json").unlink()
    before = snapshot(models / "table/1")
    both = [shell.start(fitted.folder, "export", fitted.run, "--models", models) for _ in range(2)]
    said = [p.communicate(timeout=240)[1] for p in both]
    assert snapshot(models / "table/1") == before
    done = sum(p.returncode == 0 for p in both)
    assert versions(models) == [str(1 + i) for i in range(1 + done)] and done >= 1, said
    for process, err in zip(both, said, strict=True):
        if process.returncode:
            last = f"error: Another process has just created {models}/table/2; export again."
            assert err.splitlines()[-1] == last
    learnt = {name.removeprefix("model/"): data for name, data in saved(fitted.run)[1].items()}
    for version in versions(models):
        assert verified(models / "table" / version).version == version
        assert weights(models / "table" / version) == learnt
    assert {p.name for p in models.glob("table/.*")} == {".new-killed"}


class TestEvaluate:
    @pytest.fixture
    def artefact(self, fitted, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        shutil.copy(fitted.folder / "table.csv", tmp_path)
        shutil.copytree(fitted.artefact, tmp_path / "models/table/1")
        return tmp_path / "models/table/1"

    def test_evaluate_adds_figures_pictures_and_scales_and_nothing_else(
        self, artefact, typed, verified
    ):
        before = verified(artefact)
        code, out, err = typed("evaluate", "table")
        assert code == 0 and "scales: " in err
        after = verified(artefact)
        assert before.evaluation.keys() < after.evaluation.keys()
        changed = {n for n in after.files if after.files[n] != before.files.get(n)}
        assert "card.md" in changed and changed <= {"card.md", *PICTURES}
        chosen = {k: v["chosen"] for k, v in after.evaluation["scales"].items()}
        assert {k: v.scale for k, v in after.kernels.items()} == chosen
        assert out.strip() in (artefact / "card.md").read_text()

    def test_a_quick_look_repeats_and_leaves_the_scales(self, artefact, typed, verified):
        before = verified(artefact)
        assert typed("evaluate", "table", "--quick")[0] == 0
        first = verified(artefact)
        assert typed("evaluate", "table", "--quick")[0] == 0
        assert verified(artefact).evaluation == first.evaluation, "same data, same figures"
        assert verified(artefact).files == first.files and first.kernels == before.kernels

    def test_another_file_can_be_the_test_rows(self, artefact, typed, verified, table, tmp_path):
        table(tmp_path / "later.csv", rows=200, seed=1)
        assert typed("evaluate", "table", "--quick", "--test", "later.csv")[0] == 0
        after = verified(artefact)
        assert after.evaluation["rows"] == 200
        text = (artefact / "card.md").read_text()
        assert "all 200 rows of later.csv" in text
        assert "localmoments evaluate table@1 --quick --test later.csv  # these" in text

    def test_other_data_of_the_same_width_is_judged_and_said_to_be_other(
        self, artefact, typed, verified, table, tmp_path
    ):
        before = verified(artefact)
        table(tmp_path / "later.csv", rows=200, seed=1)
        code, out, err = typed("evaluate", "table@1", "--quick", "--data", "later.csv")
        assert code == 0 and "was not trained on this data" in err
        after = verified(artefact)
        assert after.evaluation["rows"] == 10 and after.evaluation != before.evaluation
        assert "nearest training row" not in after.evaluation
        assert after.files["weights.safetensors"] == before.files["weights.safetensors"]
        Model.open(artefact)

    def test_strangers_in_the_folder_stay_unlisted(self, artefact, typed, verified):
        (artefact / ".card.md.4711").write_text("half a card, of a process that was killed")
        (artefact / "notes").mkdir()
        before = verified(artefact)
        assert typed("evaluate", "table", "--quick")[0] == 0
        assert verified(artefact).files.keys() <= before.files.keys() | PICTURES

    def test_killed_while_it_judges_or_writes_leaves_a_whole_artefact(
        self, artefact, shell, until, verified, tmp_path
    ):
        manifest = artefact / "manifest.json"
        old = manifest.stat().st_mtime_ns
        process = shell.start(tmp_path, "evaluate", "table", "--quick")
        until(lambda: manifest.stat().st_mtime_ns != old, process)
        shell.kill(process)
        verified(artefact)
