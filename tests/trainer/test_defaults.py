"""Settings for data without a recipe: allowed, and in proportion to the data."""

import numpy as np
import pytest

from trainer.config import make_recipe
from trainer.data import ArraySource, Dataset
from trainer.defaults import STEPS, default_recipe, name_of


def dataset(rows, dims):
    source = ArraySource(np.zeros((rows, dims), np.float32))
    return Dataset("x", source, None, None, None, None, "", ())


def recipe(rows, dims):
    return make_recipe({**default_recipe("x", dataset(rows, dims)), "data": {"source": "x"}})


@pytest.mark.parametrize("rows", [2, 100, 5_000, 100_000])
@pytest.mark.parametrize("dims", [1, 8, 784])
def test_every_size_of_data_gets_a_recipe_of_about_as_many_steps(rows, dims):
    chosen = recipe(rows, dims)
    steps = chosen.training.epochs * -(-0.9 * rows // chosen.training.batch)
    assert 0.9 * STEPS <= steps <= 1.1 * STEPS
    assert chosen.criterion.levels[0] < chosen.sigma < chosen.criterion.levels[1]
    assert chosen.model.conditioned and chosen.criterion.kind == "dae"


def test_large_data_is_seen_once():
    assert recipe(10**7, 8).training.epochs == 1


def test_wide_data_gets_a_wide_model():
    assert recipe(5_000, 784).model.hidden > recipe(5_000, 8).model.hidden


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("data/My Data (2).csv", "my-data-2"),
        ("x.csv.gz", "x"),
        ("../Ärger.npy", "rger"),
        ("....", "model"),
        ("_.csv", "model"),
        ("a" * 100, "a" * 64),
        ("images/", "images"),
    ],
)
def test_a_files_name_becomes_a_models_name(path, name):
    assert name_of(path) == name
    make_recipe({"name": name, "data": {"source": path}})
