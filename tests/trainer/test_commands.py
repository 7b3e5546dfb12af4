"""The command line: which recipe, run and model it means."""

import numpy as np
import pytest

from localmoments.errors import ArtefactError
from localmoments.model import find_folder
from trainer.__main__ import make_parser
from trainer.commands import continue_run, read_request, start_run
from trainer.data import load
from trainer.errors import RecipeError


def parse(*words):
    return make_parser("fit", "localmoments fit").parse_args([str(word) for word in words])


def recipe_from(*words):
    request = read_request(parse(*words))
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


class TestRuns:
    @pytest.fixture
    def words(self, tmp_path):
        np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(300, 4)))
        return (tmp_path / "rows.npz", "--runs", tmp_path / "runs", "--models", tmp_path / "models")

    def test_large_data_is_converted_once_into_the_folder_of_its_run(self, words):
        limit = ("--set", "data.memory_limit=1000")
        run = start_run(parse(*words, *limit))[2]
        (copy,) = run.staging.glob("*.npy")
        written = copy.stat().st_mtime_ns
        assert continue_run(parse(*words, *limit, "--resume"))[2] == run
        assert copy.stat().st_mtime_ns == written

    def test_settings_of_a_resumed_run_are_compared_with_its_recipe(self, words):
        run = start_run(parse(*words, "--set", "training.epochs=3"))[2]
        resume = ("--resume", run.path, "--set")
        assert continue_run(parse(*resume, "training.epochs=3"))[2] == run
        with pytest.raises(RecipeError, match=r"other settings \(training.epochs\)"):
            continue_run(parse(*resume, "training.epochs=4"))


def test_a_model_is_found_by_its_folder_its_name_or_its_version(tmp_path):
    for version in ("2", "10"):
        (tmp_path / "m" / version).mkdir(parents=True)
        (tmp_path / "m" / version / "manifest.json").touch()
    (tmp_path / "m/notes").mkdir()
    for reference in ("m", "m@10", tmp_path / "m", tmp_path / "m/10"):
        assert find_folder(reference, tmp_path) == tmp_path / "m/10"
    assert find_folder("m@2", tmp_path) == tmp_path / "m/2"
    for reference in ("n", "m@3", "m@notes"):
        with pytest.raises(ArtefactError, match="There is no model"):
            find_folder(reference, tmp_path)
