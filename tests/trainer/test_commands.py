"""The command line: which recipe, run and model it means."""

import pytest

from trainer.__main__ import make_parser
from trainer.commands import read_request
from trainer.data import load
from trainer.errors import RecipeError


def recipe_from(*words):
    args = make_parser("fit", "localmoments fit").parse_args([str(word) for word in words])
    request = read_request(args)
    return request.make(None if request.is_complete else load(request.make().data))


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

    def test_data_beside_another_file_is_refused(self, tmp_path):
        (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n")
        with pytest.raises(RecipeError, match=r"`data.path` \(--data\) is only for"):
            recipe_from(tmp_path / "a.csv", "--data", "b.csv")

    def test_a_recipe_or_data_is_required(self):
        with pytest.raises(RecipeError, match="Name a recipe or a data file"):
            recipe_from()
