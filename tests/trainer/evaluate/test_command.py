"""Figures, plots and scales are written into an artefact, which stays valid at every moment."""

import shutil

import pytest

from localmoments import artefact as manifests
from localmoments.model import Model
from trainer.errors import RecipeError
from trainer.evaluate import command
from trainer.evaluate.command import data_options, update_artefact


def test_data_is_read_from_the_given_path_or_from_that_of_the_recipe():
    assert data_options({"source": "old.csv"}, None).source == "old.csv"
    assert data_options({"source": "old.csv"}, "new.csv").source == "new.csv"
    moved = data_options({"source": "mnist", "path": "gone"}, "here.npz")
    assert (moved.source, moved.path) == ("mnist", "here.npz")
    with pytest.raises(RecipeError):
        data_options({"source": "old.csv", "holdout": -1}, None)


class Killed(BaseException):
    pass


class TestUpdateArtefact:
    @pytest.fixture
    def artefact(self, tiny_artefact, tmp_path):
        return shutil.copytree(tiny_artefact, tmp_path / "1")

    @pytest.fixture
    def plot(self, tmp_path):
        (tmp_path / "samples.png").write_bytes(b"a new plot")
        return tmp_path / "samples.png"

    def test_figures_are_written_into_manifest_and_card(self, artefact):
        update_artefact(artefact, {"reconstruction": 0.125})
        m = manifests.read(artefact)
        manifests.verify(artefact, m)
        assert m.evaluation == {"reconstruction": 0.125}
        assert "| reconstruction | 0.125 |" in (artefact / "card.md").read_text()
        assert list(m.files) == sorted(m.files) and "card.md" in m.files

    def test_new_scales_become_defaults_and_the_others_stay(self, artefact):
        before = manifests.read(artefact).kernels
        update_artefact(artefact, {}, (), {"gibbs": 0.5})
        after = Model.open(artefact).manifest.kernels
        assert after["gibbs"].scale == 0.5
        assert {k: v for k, v in after.items() if k != "gibbs"} == {
            k: v for k, v in before.items() if k != "gibbs"
        }

    def test_new_plots_are_listed_shown_and_replaced(self, artefact, plot):
        update_artefact(artefact, {}, [plot])
        assert (artefact / "samples.png").read_bytes() == b"a new plot"
        assert "(samples.png)" in (artefact / "card.md").read_text()
        plot.write_bytes(b"a newer one")
        update_artefact(artefact, {}, [plot])
        assert (artefact / "samples.png").read_bytes() == b"a newer one"
        assert "samples.png" in Model.open(artefact).manifest.files

    def test_plots_of_the_old_figures_are_removed(self, artefact, plot, tmp_path):
        other = tmp_path / "mixing.png"
        other.write_bytes(b"a plot")
        update_artefact(artefact, {}, [plot, other])
        update_artefact(artefact, {}, [other])
        assert not (artefact / "samples.png").exists()
        assert "(samples.png)" not in (artefact / "card.md").read_text()
        assert Model.open(artefact).manifest.files.keys() & {"samples.png", "mixing.png"} == {
            "mixing.png"
        }

    @pytest.mark.parametrize("moment", [0, 1, 2])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_kill_at_any_write_leaves_a_valid_artefact(
        self, artefact, moment, when, plot, monkeypatch
    ):
        """Each of the three writes is one rename; the kill comes before or after one of them."""
        write, count = command.write_text, iter(range(3))

        def write_or_die(path, text):
            last = next(count) == moment
            if not (last and when == "before"):
                write(path, text)
            if last:
                raise Killed

        monkeypatch.setattr(command, "write_text", write_or_die)
        with pytest.raises(Killed):
            update_artefact(artefact, {"reconstruction": 0.125}, [plot], {"gibbs": 0.5})
        Model.open(artefact)

    def test_other_files_in_the_folder_are_not_listed(self, artefact):
        before = manifests.read(artefact).files.keys()
        (artefact / ".DS_Store").touch()
        (artefact / "notes.txt").touch()
        (artefact / "drafts").mkdir()
        update_artefact(artefact, {})
        assert manifests.read(artefact).files.keys() == before
