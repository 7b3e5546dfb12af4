"""What the words of a command line come to."""

import pytest

from localmoments.errors import ArtefactError
from trainer.__main__ import parser
from trainer.commands import find_artefact, recipe_of
from trainer.errors import RecipeError


def asked(*words):
    return recipe_of(parser().parse_args(["fit", *map(str, words)]))


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text('[data]\nsource = "gaussian"\nrows = 40\n[training]\nepochs = 7\n')
    return path


class TestRecipe:
    def test_is_named_after_its_file_unless_told(self, recipe):
        assert asked(recipe).name == "my"
        assert asked(recipe, "--name", "other").name == "other"

    def test_settings_go_over_the_file(self, recipe):
        r = asked(recipe, "--set", "training.epochs=9", "--set", "model.unit=tanh")
        assert (r.training.epochs, r.model.unit, r.data.rows) == (9, "tanh", 40)

    def test_data_replaces_a_file_but_tells_a_named_set_where_it_lies(self, recipe, tmp_path):
        recipe.write_text('[data]\nsource = "old.csv"\n')
        assert asked(recipe, "--data", "new.csv").data.source == "new.csv"
        recipe.write_text('[data]\nsource = "mnist"\n')
        r = asked(recipe, "--data", "here.npz")
        assert (r.data.source, r.data.path) == ("mnist", "here.npz")

    def test_a_plain_source_gets_defaults_that_settings_go_over(self):
        r = asked("gaussian", "--set", "data.rows=40", "--set", "training.epochs=2")
        assert (r.name, r.data.rows, r.training.epochs) == ("gaussian", 40, 2)
        assert r.model.conditioned and r.criterion.kind == "dae"

    def test_a_models_folder_is_its_own_recipe(self, tiny_artefact, tiny_recipe):
        assert asked(tiny_artefact) == tiny_recipe

    def test_nothing_is_refused(self):
        with pytest.raises(RecipeError, match="Name a recipe or a data file"):
            asked()


class TestFindArtefact:
    @pytest.fixture
    def models(self, tmp_path):
        for version in ("2", "10", ".new-1", "notes"):
            (tmp_path / "m" / version).mkdir(parents=True)
        return tmp_path

    def test_a_name_means_its_newest_version(self, models):
        assert find_artefact("m", models) == models / "m/10"
        assert find_artefact("m@2", models) == models / "m/2"

    def test_a_path_means_itself(self, tiny_artefact, models):
        assert find_artefact(str(tiny_artefact), models) == tiny_artefact

    @pytest.mark.parametrize("reference", ["n", "m@3", "m@notes", "m@.new-1"])
    def test_what_is_not_there_is_refused(self, reference, models):
        with pytest.raises(ArtefactError, match="There is no model"):
            find_artefact(reference, models)
