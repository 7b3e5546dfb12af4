"""Recipes: every key and value is checked, and one sentence says what is wrong."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from trainer.config import (
    DEFAULT_STEPS,
    RECIPES,
    CriterionOptions,
    Recipe,
    apply_settings,
    default_recipe,
    find_recipe,
    make_recipe,
    name_from_path,
    read_recipe,
)
from trainer.errors import RecipeError

LEAST: dict[str, Any] = {"name": "a", "data": {"source": "digits"}}
FULL: dict[str, Any] = {
    "name": "full",
    "data": {"source": "x.csv", "columns": ["a", "b"], "holdout": 50, "missing": "drop"},
    "model": {"dims": 2, "hidden": [8, 4], "unit": "tanh", "blocks": 1, "conditioned": True},
    "criterion": {"kind": "dae", "sigma": [0.1, 1], "walkback": 2},
    "training": {"epochs": 3, "learning_rate": 1, "keep": "last"},
    "sampling": {"kernel": "gibbs", "scales": {"gibbs": 1, "moment": 1.5}, "sigma": 0.5},
}


def with_value(table: str, key: str, value: Any) -> dict[str, Any]:
    body = deepcopy(LEAST)
    body.setdefault(table, {})[key] = value
    return body


@pytest.mark.parametrize("body", [LEAST, FULL])
def test_a_recipe_survives_json(body: dict[str, Any]) -> None:
    recipe = make_recipe(body)
    assert make_recipe(json.loads(json.dumps(recipe.as_dict()))) == recipe


def test_values_have_the_types_of_the_dataclasses() -> None:
    recipe = make_recipe(FULL)
    assert recipe.model.hidden == (8, 4)
    assert recipe.criterion.levels == (0.1, 1.0)
    assert isinstance(recipe.training.learning_rate, float)
    assert recipe.data.holdout == 50 and isinstance(recipe.data.holdout, int)
    assert recipe.sampling.scales == {"gibbs": 1.0, "moment": 1.5}
    assert CriterionOptions(sigma=0.3).levels == (0.3, 0.3)


def test_sigma_is_the_setting_or_the_middle_of_the_range_or_the_root_of_alpha() -> None:
    assert make_recipe(FULL).sigma == 0.5
    assert make_recipe(with_value("criterion", "sigma", [0.1, 0.9])).sigma == pytest.approx(0.3)
    assert make_recipe(with_value("criterion", "sigma", 0.7)).sigma == pytest.approx(0.7)
    contractive = LEAST | {"criterion": {"kind": "rcae", "alpha": 0.04}}
    assert make_recipe(contractive).sigma == pytest.approx(0.2)
    noisy = {"criterion": contractive["criterion"] | {"input_noise": 0.3}}
    assert make_recipe(contractive | noisy).sigma == pytest.approx(0.13**0.5)


@pytest.mark.parametrize(
    ("table", "key", "near"),
    [
        ("model", "hiden", "hidden"),
        ("criterion", "sigmas", "sigma"),
        ("training", "epoch", "epochs"),
        ("sampling", "kernels", "kernel"),
        ("data", "colums", "columns"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(
    table: str, key: str, near: str
) -> None:
    with pytest.raises(RecipeError, match=rf"no setting `{table}\.{key}`; did you mean {near}\?"):
        make_recipe(with_value(table, key, 1))


def test_an_unknown_key_without_a_near_one_is_refused_with_a_list_of_all() -> None:
    with pytest.raises(RecipeError, match="the settings are name, data, model, criterion"):
        make_recipe(LEAST | {"zzz": 1})


@pytest.mark.parametrize(
    ("table", "key", "value", "expected"),
    [
        ("model", "hidden", 256, "a list of layer widths (whole numbers), for example [256, 128]"),
        ("model", "hidden", ["a"], "(whole numbers)"),
        ("model", "hidden", [1.5], "(whole numbers)"),
        ("model", "tied", 1, "true or false"),
        ("model", "tied", "yes", "true or false"),
        ("model", "blocks", True, "a whole number"),
        ("model", "dims", "8", "a whole number"),
        ("model", "unit", "relu", "sigmoid, tanh"),
        ("model", "unit", ["silu"], "sigmoid, tanh"),
        ("criterion", "alpha", "0.1", "a positive number"),
        ("criterion", "alpha", True, "a positive number"),
        ("criterion", "alpha", None, "a positive number"),
        ("criterion", "sigma", [0.1], "a positive number or a list of 2"),
        ("criterion", "sigma", "wide", "a positive number or a list of 2"),
        ("criterion", "sigma", {"low": 1}, "a positive number or a list of 2"),
        ("training", "epochs", 1.5, "a whole number"),
        ("training", "batch", [1], "a whole number"),
        ("sampling", "scales", 1.0, "a table"),
        ("sampling", "scales", {"gibbs": "big"}, "a positive number"),
        ("data", "source", 7, "text"),
        ("data", "columns", "mean", 'a list of column names, for example ["age", "income"]'),
    ],
)
def test_a_value_of_the_wrong_type_gets_a_sentence_with_what_is_expected(
    table: str, key: str, value: Any, expected: str
) -> None:
    with pytest.raises(RecipeError) as refusal:
        make_recipe(with_value(table, key, value))
    sentence = str(refusal.value)
    assert sentence.startswith(f"`{table}.{key}` must be ") and expected in sentence
    assert sentence.endswith(f"; got {value!r}.")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "The recipe must be a table"),
        (LEAST | {"model": 5}, "`model` must be a table"),
        ({"name": "a"}, "`data` is missing"),
        ({"data": {"source": "digits"}}, "`name` is missing"),
        ({"name": "a", "data": {}}, r"`data\.source` is missing"),
    ],
)
def test_tables_that_are_not_a_recipe_get_a_sentence(body: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        make_recipe(body)


IMPOSSIBLE = [
    ({"name": "A B"}, "name"),
    ({"criterion": {"sigma": 0}}, "sigma"),
    ({"criterion": {"sigma": [1.0, 0.1]}}, "sigma"),
    ({"criterion": {"sigma": float("nan")}}, "sigma"),
    ({"criterion": {"sigma": float("inf")}}, "sigma"),
    ({"criterion": {"alpha": 0}}, "alpha"),
    ({"criterion": {"alpha": float("inf")}}, "alpha"),
    ({"criterion": {"amount": 1.0}}, "amount"),
    ({"criterion": {"walkback": 0}}, "walkback"),
    ({"criterion": {"probes": -1}}, "probes"),
    ({"criterion": {"hidden_noise": 0.5}}, "hidden_noise"),
    ({"criterion": {"kind": "cae", "hidden_noise": -0.5}}, "hidden_noise"),
    ({"criterion": {"kind": "cae", "hidden_noise": [0, 1.0]}}, "hidden_noise"),
    ({"criterion": {"kind": "cae", "hidden_noise": [1.0, 0.5]}}, "hidden_noise"),
    ({"criterion": {"kind": "cae", "hidden_noise": 0.5, "stacked": True}}, "exclude"),
    ({"criterion": {"kind": "cae", "hidden_noise": 0.5, "hidden_floor": -0.1}}, "hidden_floor"),
    ({"criterion": {"kind": "cae", "hidden_noise": 0.5, "hidden_return": -1.0}}, "hidden_return"),
    ({"criterion": {"kind": "cae", "hidden_floor": 0.1}}, "needs criterion.hidden_noise"),
    ({"criterion": {"kind": "rcae", "input_noise": -0.1}}, "input_noise"),
    ({"criterion": {"input_noise": 0.1}}, "requires criterion.kind = rcae"),
    ({"criterion": {"kind": "cae", "hidden_return": 0.1}}, "needs criterion.hidden_noise"),
    ({"criterion": {"stacked": True}}, "stacked"),
    ({"criterion": {"kind": "cae", "stacked": True}, "model": {"blocks": 1}}, "blocks"),
    ({"criterion": {"loss": "cross-entropy"}, "model": {"decoder": "linear"}}, "cross-entropy"),
    ({"criterion": {"kind": "cae"}, "model": {"conditioned": True}}, "conditioned"),
    ({"criterion": {"corruption": "masking"}, "model": {"conditioned": True}}, "conditioned"),
    ({"training": {"epochs": 0}}, "epochs"),
    ({"training": {"batch": 0}}, "batch"),
    ({"training": {"learning_rate": 0}}, "learning_rate"),
    ({"training": {"learning_rate": float("inf")}}, "learning_rate"),
    ({"training": {"weight_decay": -0.1}}, "weight_decay"),
    ({"training": {"average": 1.0}}, "average"),
    ({"training": {"seed": -1}}, "seed"),
    ({"training": {"checkpoint_seconds": 0}}, "checkpoint_seconds"),
    ({"training": {"threads": -1}}, "threads"),
    ({"sampling": {"sigma": 0}}, "sampling.sigma"),
    ({"sampling": {"start_points": 0}}, "start_points"),
    ({"sampling": {"root": "polynomial", "root_degree": 1}}, "root_degree"),
    ({"sampling": {"halvings": -1}}, "halvings"),
    ({"sampling": {"halvings": 1}}, "halvings"),
    (
        {
            "criterion": {"sigma": [0.2, 1]},
            "model": {"conditioned": True},
            "sampling": {"sigma": 0.5, "halvings": 2},
        },
        "halvings",
    ),
    ({"sampling": {"scales": {"gibbs": 0}}}, "scales"),
    ({"sampling": {"scales": {"gibs": 1}}}, "scales"),
]


@pytest.mark.parametrize(("change", "word"), IMPOSSIBLE, ids=[str(c) for c, _ in IMPOSSIBLE])
def test_an_impossible_recipe_is_refused_before_anything_is_trained(
    change: dict[str, Any], word: str
) -> None:
    with pytest.raises(RecipeError) as refusal:
        make_recipe(LEAST | change)
    assert word in str(refusal.value) and str(refusal.value).endswith(".")


def test_settings_override_the_recipe_and_the_last_one_wins() -> None:
    settings = [
        "training.epochs=7",
        "training.epochs=9",
        "model.unit=tanh",
        "model.hidden=[3, 2]",
        "model.tied=true",
        "sampling.scales.gibbs=0.5",
        "data.source=my data.csv",
        "name=b",
    ]
    recipe = make_recipe(apply_settings(LEAST | {"training": {"epochs": 3, "batch": 5}}, settings))
    assert (recipe.training.epochs, recipe.training.batch) == (9, 5)
    assert recipe.model.unit == "tanh" and recipe.model.hidden == (3, 2) and recipe.model.tied
    assert recipe.sampling.scales == {"gibbs": 0.5}
    assert recipe.data.source == "my data.csv" and recipe.name == "b"


def test_applying_settings_does_not_change_the_recipe_in_place() -> None:
    body = deepcopy(FULL)
    apply_settings(body, ["model.unit=silu", "sampling.scales.gibbs=9", "new.table=1"])
    assert body == FULL


@pytest.mark.parametrize("setting", ["training.epochs", "=3", "training.=3", "name.x=1"])
def test_a_malformed_setting_gets_a_sentence(setting: str) -> None:
    with pytest.raises(RecipeError, match="--set"):
        apply_settings(LEAST, [setting])


def test_a_misspelt_setting_is_refused_like_a_misspelt_key() -> None:
    with pytest.raises(RecipeError, match="did you mean epochs"):
        make_recipe(apply_settings(LEAST, ["training.epohcs=3"]))


def test_a_recipe_is_found_by_path_or_by_name(tmp_path: Path) -> None:
    assert find_recipe("x/y.toml") == Path("x/y.toml")
    assert find_recipe("no-such-recipe") is None
    assert find_recipe("../config") is None
    assert find_recipe(str(tmp_path / "data.csv")) is None


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_is_found_by_its_name(path: Path) -> None:
    assert find_recipe(path.stem) == path


@pytest.mark.parametrize("content", [b"name = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml_gets_a_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_bytes(content)
    with pytest.raises(RecipeError, match=r"r\.toml is not a readable recipe"):
        read_recipe(tmp_path / "r.toml")


def test_a_missing_file_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="There is no recipe at"):
        read_recipe(tmp_path / "r.toml")


def recipe_for(rows: int, dims: int) -> Recipe:
    return make_recipe({**default_recipe("x", rows, dims), "data": {"source": "x"}})


@pytest.mark.parametrize("rows", [2, 100, 5_000, 100_000])
@pytest.mark.parametrize("dims", [1, 8, 784])
def test_data_of_any_size_gets_a_recipe_with_about_the_same_number_of_steps(
    rows: int, dims: int
) -> None:
    chosen = recipe_for(rows, dims)
    steps = chosen.training.epochs * -(-0.9 * rows // chosen.training.batch)
    assert 0.9 * DEFAULT_STEPS <= steps <= 1.1 * DEFAULT_STEPS
    assert chosen.criterion.levels[0] < chosen.sigma < chosen.criterion.levels[1]
    assert chosen.model.conditioned and chosen.criterion.kind == "dae"


def test_large_data_gets_one_epoch() -> None:
    assert recipe_for(10**7, 8).training.epochs == 1


def test_wide_data_gets_a_wide_model() -> None:
    assert recipe_for(5_000, 784).model.hidden > recipe_for(5_000, 8).model.hidden


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
def test_a_model_is_named_after_its_file(path: str, name: str) -> None:
    assert name_from_path(path) == name
    make_recipe({"name": name, "data": {"source": path}})
