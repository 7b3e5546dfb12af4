"""An artefact appears whole or not at all, and no version is ever written over."""

import random
import shutil
import time

import pytest

from service.engine.model import Model


def snapshot(folder):
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}


def versions(models):
    return sorted(p.name for p in models.glob("table/*") if not p.name.startswith("."))


def test_a_killed_export_leaves_no_version_or_a_whole_one(shell, fitted, until, verified, tmp_path):
    models = tmp_path / "models"
    process = shell.start(fitted.folder, "export", fitted.run, "--models", models)
    until(lambda: list(models.glob("table/.new-*")), process)
    time.sleep(random.Random(2).uniform(0, 4))
    shell.kill(process)
    for version in versions(models):
        verified(models / "table" / version)


@pytest.mark.slow
def test_exports_at_one_moment_beside_the_ruins_of_a_killed_one_never_collide(
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
            last = f"error: {models}/table/2 was made by another process meanwhile; export again."
            assert err.splitlines()[-1] == last
    learnt = {name.removeprefix("model/"): data for name, data in saved(fitted.run)[1].items()}
    for version in versions(models):
        assert verified(models / "table" / version).version == version
        assert weights(models / "table" / version) == learnt
    assert {p.name for p in models.glob("table/.*")} == {".new-killed"}


class TestEvaluate:
    @pytest.fixture
    def artefact(self, fitted, tmp_path):
        shutil.copy(fitted.folder / "table.csv", tmp_path)
        shutil.copytree(fitted.artefact, tmp_path / "models/table/1")
        return tmp_path / "models/table/1"

    def test_evaluate_rewrites_the_figures_and_nothing_else(self, artefact, typed, verified):
        before = verified(artefact)
        code, out, err = typed("evaluate", "table")
        assert (code, err) == (0, "")
        after = verified(artefact)
        assert after.evaluation == before.evaluation, "same data, same figures"
        assert after.files == before.files
        assert out.strip() in (artefact / "card.md").read_text()

    def test_other_data_of_the_same_width_is_judged_and_said_to_be_other(
        self, artefact, typed, verified, table, tmp_path
    ):
        before = verified(artefact)
        table(tmp_path / "later.csv", rows=200, seed=1)
        code, out, err = typed("evaluate", "table@1", "--data", "later.csv")
        assert code == 0 and "not the data that the model was trained on" in err
        after = verified(artefact)
        assert after.evaluation["rows"] == 20 and after.evaluation != before.evaluation
        assert {n for n in after.files if after.files[n] != before.files[n]} == {"card.md"}
        Model.open(artefact)

    def test_strangers_in_the_folder_stay_unlisted(self, artefact, typed, verified):
        (artefact / ".card.md.4711").write_text("half a card, of a process that was killed")
        (artefact / "notes").mkdir()
        before = verified(artefact)
        assert typed("evaluate", "table")[0] == 0
        assert verified(artefact).files.keys() == before.files.keys()

    def test_killed_while_it_judges_or_writes_leaves_a_whole_artefact(
        self, artefact, shell, until, verified, tmp_path
    ):
        manifest = artefact / "manifest.json"
        old = manifest.stat().st_mtime_ns
        process = shell.start(tmp_path, "evaluate", "table")
        until(lambda: manifest.stat().st_mtime_ns != old, process)
        shell.kill(process)
        verified(artefact)
