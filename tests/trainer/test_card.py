"""The card describes what the manifest records."""

import shlex
from dataclasses import replace

import pytest

from localmoments import artefact as manifests
from trainer.__main__ import make_parser
from trainer.card import CAPTIONS, KINDS, format_card
from trainer.evaluate.command import format_options
from trainer.evaluate.report import OPTIONS


@pytest.fixture
def manifest(tiny_artefact):
    return manifests.read(tiny_artefact)


def test_the_card_says_what_the_model_is_and_how_to_train_it_again(manifest):
    text = format_card(manifest, [])
    assert text.startswith("# tiny@1\n") and KINDS["dae"] in text
    assert "360 rows of mixture (8 columns)" in text
    assert "localmoments fit models/tiny/1" in text
    assert manifest.created in text and f"torch {manifest.libraries['torch']}" in text


@pytest.mark.parametrize("options", ["", "--no-search", "--quick --test 'later rows.csv'"])
def test_the_card_shows_the_command_that_computed_its_figures(manifest, options):
    """A search would choose other scales, and so give other figures."""
    figures = {"reconstruction": 0.5, OPTIONS: options}
    text = format_card(replace(manifest, evaluation=figures), [])
    command = f"localmoments evaluate tiny@1 {options}".rstrip()
    assert f"\n{command}  # these figures and plots\n" in text
    _, name, *words = shlex.split(command)
    shown = make_parser(name, "localmoments").parse_args(words)
    assert format_options(shown) == options
    assert "| options" not in text


def test_the_card_of_a_fit_shows_the_command_for_more_figures(manifest):
    text = format_card(manifest, [])
    assert "localmoments evaluate tiny@1  # more figures and plots" in text


def test_nested_figures_are_shown(manifest):
    figures = {"reconstruction": 0.12345678, "sliced Wasserstein": {"gibbs": 0.5, "rows": 3}}
    text = format_card(replace(manifest, evaluation=figures), [])
    for line in ("| reconstruction | 0.1235 |", "| sliced Wasserstein, gibbs | 0.5 |",
                 "| sliced Wasserstein, rows | 3 |"):  # fmt: skip
        assert line in text


def test_a_card_without_figures_says_how_to_get_them(manifest):
    assert "Not evaluated yet" in format_card(replace(manifest, evaluation={}), [])


def test_every_plot_is_shown_with_a_caption_in_the_given_order(manifest):
    names = [f"{name}.png" for name in CAPTIONS]
    text = format_card(manifest, names)
    at = [text.index(f"({name})") for name in names]
    assert at == sorted(at) and all(caption in text for caption in CAPTIONS.values())


def test_images_are_described_by_their_shape(manifest):
    assert "images of 2×4" in format_card(replace(manifest, image=(2, 4)), [])


def test_the_parts_of_alpha_are_shown_for_a_model_with_input_noise(manifest):
    noisy = {"criterion": {"alpha": 0.25, "input_noise": 0.5}}
    text = format_card(replace(manifest, alpha=0.5, recipe=manifest.recipe | noisy), [])
    assert "| α | 0.5 (0.25 + 0.5², trained at input noise 0.5) |" in text
    quiet = manifest.recipe["criterion"] | {"input_noise": 0.0}
    without = replace(manifest, alpha=0.5, recipe=manifest.recipe | {"criterion": quiet})
    assert "| α | 0.5 |" in format_card(without, [])


def test_noise_on_the_code_in_training_is_shown(manifest):
    criterion = {"hidden_noise": [0.4, 0.9], "hidden_floor": 0.3, "hidden_return": 0.5}
    text = format_card(replace(manifest, recipe=manifest.recipe | {"criterion": criterion}), [])
    said = "0.4 to 0.9 of the code's spread, floor 0.3, return 0.5"
    assert f"| noise on the code in training | {said} |" in text
    single = format_card(replace(manifest, recipe={"criterion": {"hidden_noise": 0.7}}), [])
    assert "| 0.7 of the code's spread, floor 0, return 0 |" in single
    assert "noise on the code" not in format_card(manifest, [])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_a_description(kind, manifest):
    article = "An " if KINDS[kind].split()[1][0] in "aeiou" else "A "
    assert KINDS[kind].startswith(article)
    assert f"\n\n{KINDS[kind]}, " in format_card(replace(manifest, kind=kind), [])


def test_a_model_without_additions_has_none_in_its_first_sentence(manifest):
    plain = {"kind": "cae", "hidden_noise": 0.0, "walkback": 1}
    recipe = manifest.recipe | {"criterion": plain, "model": {"hidden": [4], "tied": True}}
    first = format_card(replace(manifest, kind="cae", recipe=recipe), []).split("\n\n")[1]
    assert first.startswith(KINDS["cae"]) and "additions" not in first


ADDITIONS = {
    "hidden noise": ({"criterion": {"hidden_noise": [0.4, 0.9]}}, "chain's own noise"),
    "a floor": ({"criterion": {"hidden_floor": 0.4}}, "white noise on the code"),
    "a return": ({"criterion": {"hidden_return": 0.5}}, "encoded once more"),
    "input noise": ({"criterion": {"input_noise": 0.5, "alpha": 0.1}}, "noise added"),
    "walkback": ({"criterion": {"walkback": 2}}, "walkback"),
    "conditioned": ({"model": {"conditioned": True}}, "takes its noise level as an input"),
}


@pytest.mark.parametrize("case", ADDITIONS)
def test_additions_to_the_paper_are_in_the_first_sentence(manifest, case):
    recipe, words = ADDITIONS[case]
    first = format_card(replace(manifest, recipe=recipe), []).split("\n\n")[1]
    assert "trained with additions" in first and words in first


def test_the_card_names_residual_blocks_and_the_covariance_of_a_draw(manifest):
    recipe = {"model": {"hidden": [64], "blocks": 1}, "sampling": {"gain": 1.75}}
    text = format_card(replace(manifest, input_dims=784, recipe=recipe), [])
    assert "64, 1 residual block after each" in text
    assert "γ²JJᵀ in place of A, γ = 1.75" in text
    assert "A (root `matrix`)" in format_card(replace(manifest, recipe={}), [])


def test_the_card_of_one_tied_layer_names_the_root_that_is_exported(manifest):
    """`exact` comes before `matrix`, and requires a linear decoder."""
    model = {"hidden": [8], "unit": "linear", "tied": True}
    assert "A (root `exact`)" in format_card(replace(manifest, recipe={"model": model}), [])
    bounded = model | {"decoder": "sigmoid"}
    assert "A (root `matrix`)" in format_card(replace(manifest, recipe={"model": bounded}), [])


def test_the_card_says_where_the_chains_of_the_plot_start(manifest):
    assert "start from noise, 1,000 steps before" in format_card(manifest, ["samples.png"])
    wide = replace(manifest, input_dims=784)
    assert "start from noise, 100 steps before" in format_card(wide, ["samples.png"])
