"""Figures, pictures and scales go into an artefact, which stays whole all the while."""

import shutil

import pytest

from localmoments import artefact as manifests
from localmoments.model import Model
from trainer.errors import RecipeError
from trainer.judging import data_options, rewrite


def test_data_lies_where_the_command_says_or_where_the_recipe_did():
    assert data_options({"source": "old.csv"}, None).source == "old.csv"
    assert data_options({"source": "old.csv"}, "new.csv").source == "new.csv"
    moved = data_options({"source": "mnist", "path": "gone"}, "here.npz")
    assert (moved.source, moved.path) == ("mnist", "here.npz")
    with pytest.raises(RecipeError):
        data_options({"source": "old.csv", "holdout": -1}, None)


class Killed(BaseException):
    pass


class TestRewrite:
    @pytest.fixture
    def artefact(self, tiny_artefact, tmp_path):
        return shutil.copytree(tiny_artefact, tmp_path / "1")

    @pytest.fixture
    def picture(self, tmp_path):
        (tmp_path / "samples.png").write_bytes(b"a new picture")
        return tmp_path / "samples.png"

    def test_puts_them_into_manifest_and_card(self, artefact):
        rewrite(artefact, {"reconstruction": 0.125})
        m = manifests.read(artefact)
        manifests.verify(artefact, m)
        assert m.evaluation == {"reconstruction": 0.125}
        assert "| reconstruction | 0.125 |" in (artefact / "card.md").read_text()
        assert list(m.files) == sorted(m.files) and "card.md" in m.files

    def test_new_scales_are_the_kernels_defaults_and_the_others_stay(self, artefact):
        before = manifests.read(artefact).kernels
        rewrite(artefact, {}, (), {"gibbs": 0.5})
        after = Model.open(artefact).manifest.kernels
        assert after["gibbs"].scale == 0.5
        assert {k: v for k, v in after.items() if k != "gibbs"} == {
            k: v for k, v in before.items() if k != "gibbs"
        }

    def test_new_pictures_are_listed_shown_and_replaced(self, artefact, picture):
        rewrite(artefact, {}, [picture])
        assert (artefact / "samples.png").read_bytes() == b"a new picture"
        assert "(samples.png)" in (artefact / "card.md").read_text()
        picture.write_bytes(b"a newer one")
        rewrite(artefact, {}, [picture])
        assert (artefact / "samples.png").read_bytes() == b"a newer one"
        assert "samples.png" in Model.open(artefact).manifest.files

    @pytest.mark.parametrize("moment", [0, 1, 2])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_stopped_at_any_write_the_artefact_is_whole(
        self, artefact, moment, when, picture, monkeypatch
    ):
        """Each of the three writes is one rename; death comes before or after one of them."""
        from trainer import judging

        write, count = judging.write_text, iter(range(3))

        def dying(path, text):
            last = next(count) == moment
            if not (last and when == "before"):
                write(path, text)
            if last:
                raise Killed

        monkeypatch.setattr(judging, "write_text", dying)
        with pytest.raises(Killed):
            rewrite(artefact, {"reconstruction": 0.125}, [picture], {"gibbs": 0.5})
        Model.open(artefact)

    def test_does_not_take_strangers_into_the_list(self, artefact):
        before = manifests.read(artefact).files.keys()
        (artefact / ".DS_Store").touch()
        (artefact / "notes.txt").touch()
        (artefact / "drafts").mkdir()
        rewrite(artefact, {})
        assert manifests.read(artefact).files.keys() == before
