"""The command line: which recipe, run and model it means."""

import pytest

from localmoments.errors import ArtefactError
from trainer.__main__ import make_parser
from trainer.commands import choose_recipe, find_artefact
from trainer.errors import RecipeError


def recipe_from(*words):
    args = make_parser("fit", "localmoments fit").parse_args([str(word) for word in words])
    return choose_recipe(args)[0]


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text('[data]\nsource = "gaussian"\nrows = 40\n[training]\nepochs = 7\n')
    return path


class TestRecipe:
    def test_is_named_after_its_file_unless_a_name_is_given(self, recipe):
        assert recipe_from(recipe).name == "my"
        assert recipe_from(recipe, "--name", "other").name == "other"

    def test_settings_override_the_file(self, recipe):
        r = recipe_from(recipe, "--set", "training.epochs=9", "--set", "model.unit=tanh")
        assert (r.training.epochs, r.model.unit, r.data.rows) == (9, "tanh", 40)

    def test_data_replaces_a_file_and_locates_a_known_data_set(self, recipe, tmp_path):
        recipe.write_text('[data]\nsource = "old.csv"\n')
        assert recipe_from(recipe, "--data", "new.csv").data.source == "new.csv"
        recipe.write_text('[data]\nsource = "mnist"\n')
        r = recipe_from(recipe, "--data", "here.npz")
        assert (r.data.source, r.data.path) == ("mnist", "here.npz")

    def test_data_without_a_recipe_gets_defaults_that_settings_override(self):
        r = recipe_from("gaussian", "--set", "data.rows=40", "--set", "training.epochs=2")
        assert (r.name, r.data.rows, r.training.epochs) == ("gaussian", 40, 2)
        assert r.model.conditioned and r.criterion.kind == "dae"

    def test_a_models_folder_contains_its_recipe(self, tiny_artefact, tiny_recipe):
        assert recipe_from(tiny_artefact) == tiny_recipe

    def test_a_recipe_or_data_is_required(self):
        with pytest.raises(RecipeError, match="Name a recipe or a data file"):
            recipe_from()


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
    def test_a_missing_model_or_version_is_refused(self, reference, models):
        with pytest.raises(ArtefactError, match="There is no model"):
            find_artefact(reference, models)
