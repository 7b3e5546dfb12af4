"""Whole evaluations of small models: which figures they have, and which they leave out."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from localmoments.model import Model
from trainer.evaluate import Budget, evaluate, read_split, rows_for
from trainer.evaluate.context import DIVERGED, make_context
from trainer.evaluate.report import figures_text, number_with_error
from trainer.evaluate.run import compare_chains_with_law
from trainer.plots.artefact import draw_evaluation_plots

SMALL = Budget(walkers=60, kept=3, burn_in=12, thin=2, chains=5, long_kept=12, lags=10,
             feature_rows=200, exact_rows=200, examples=6_000, search_walkers=40, search_steps=12,
             search_kept=2)  # fmt: skip


def run(model, prepared, budget=SMALL, other=None):
    return evaluate(model, prepared.dataset, prepared.split, budget, None, other)


def context_of(model, prepared, budget):
    m = model.manifest
    rows = rows_for(prepared.dataset, prepared.split, m.normaliser, read_split(m))
    return make_context(model, prepared.dataset, rows, budget, None)


@pytest.fixture(scope="module")
def of_digits(digits_model, digits):
    return run(digits_model, digits)


def numbers_in(value):
    """Every number in a nest of figures."""
    if isinstance(value, dict):
        return [x for inner in value.values() for x in numbers_in(inner)]
    return [value] if isinstance(value, int | float) else []


class TestImagesWithLabels:
    def test_every_set_of_samples_has_every_figure(self, of_digits):
        sets = of_digits.figures["samples"]
        assert list(sets) == [
            "60 chains, mean", "60 chains, noisy", "5 long chains, mean", "5 long chains, noisy",
            "real against real", "training rows", "k-means centres",
        ]  # fmt: skip
        estimates = {"log-likelihood", "density", "coverage", "kernel distance",
                     "Fréchet distance", "sliced Wasserstein", "class entropy"}  # fmt: skip
        for found in sets.values():
            assert set(found) == {"samples", "bandwidth", "errors", *estimates}
            assert set(found["errors"]) == estimates
            assert all(np.isfinite(error) for error in found["errors"].values())
            assert found["errors"]["sliced Wasserstein"] > 0
        assert sets["60 chains, mean"]["samples"] == 180 and sets["training rows"]["samples"] == 180

    def test_real_rows_score_better_than_a_briefly_trained_model(self, of_digits):
        sets = of_digits.figures["samples"]
        ours = sets["60 chains, noisy"]
        for real in (sets["real against real"], sets["training rows"]):
            for figure in ("kernel distance", "Fréchet distance", "sliced Wasserstein"):
                assert real[figure] < ours[figure]
            assert real["coverage"] > ours["coverage"] and real["class entropy"] > 0.95

    def test_all_sets_are_compared_at_half_the_number_of_test_rows(self, of_digits):
        """90 test rows: 40 draws of 45 and 45."""
        description = of_digits.figures["comparison"]
        assert description == "40 random draws of 45 test rows and the same number of samples"
        assert of_digits.figures["samples"]["real against real"]["samples"] == 45

    def test_mixing_class_changes_and_copies_are_measured(self, of_digits):
        figures = of_digits.figures
        assert figures["classifier accuracy"] > 0.7
        assert 0 < figures["mixing"]["class changes a step"] < 0.9, (
            "independent draws of ten classes change in 0.9 of the steps"
        )
        assert {"split R-hat", "bulk ESS", "tail ESS"} == set(figures["mixing"]["component 1"])
        copies = figures["nearest training row"]
        quantiles = list(copies["samples"].values())
        assert quantiles == sorted(quantiles) and quantiles[0] > 0
        assert copies["samples that look like copies"] < 0.1
        assert "moments" not in figures and "exact draws" not in figures

    def test_every_chosen_scale_was_tried(self, of_digits, digits_model):
        scales = of_digits.figures["scales"]
        assert set(scales) == set(digits_model.manifest.kernels)
        for name, found in scales.items():
            assert of_digits.scales[name] == found["chosen"]
            tried = [float(scale) for scale in found["tried"]]
            assert len(tried) >= 6 and min(abs(np.log(s / found["chosen"])) for s in tried) < 1e-3

    def test_all_figures_are_finite_and_can_be_stored_as_json(self, of_digits):
        numbers = numbers_in(of_digits.figures)
        assert len(numbers) > 60 and np.isfinite(numbers).all()
        assert json.loads(json.dumps(of_digits.figures, allow_nan=False)) == of_digits.figures

    def test_figures_repeat(self, of_digits, digits_model, digits):
        assert run(digits_model, digits).figures == of_digits.figures

    def test_plots_are_small_and_have_a_white_margin(
        self, of_digits, digits_model, digits, tmp_path
    ):
        model = digits_model
        data = digits.dataset, digits.split
        paths = draw_evaluation_plots(model, *data, of_digits, tmp_path)
        assert [p.stem for p in paths] == [
            "samples", "classes", "bandwidths", "mixing", "distances", "neighbours",
        ]  # fmt: skip
        for path in paths:
            with Image.open(path) as image:
                pixels = np.asarray(image.convert("RGB"))
            assert path.stat().st_size < 300_000
            assert (pixels[0] == 255).all() and (pixels != 255).any(), path

    def test_the_card_shows_every_set_next_to_the_references(self, of_digits, digits_model):
        m = replace(digits_model.manifest, evaluation=of_digits.figures)
        text = figures_text(m)
        assert "| 60 chains, mean | 60 chains, noisy |" in text
        assert "| real against real | training rows | k-means centres |" in text
        for words in ("a random half of the 180 held-out rows", "The figure favours blur",
                      "± is one standard error", "was trained on the *training rows*",
                      "### Mixing of 5 chains", "### Copies of training rows",
                      "### Scales"):  # fmt: skip
            assert words in text
        ours = of_digits.figures["samples"]["60 chains, mean"]
        cell = number_with_error(ours["coverage"], ours["errors"]["coverage"])
        assert "±" in cell and f"| coverage | {cell} |" in text
        assert "were compared on held-out rows" not in text, "there is no recipe of this name"
        assert "were compared on held-out rows" in figures_text(replace(m, name="digits-dae"))
        assert "GAN 225" not in text, "published figures are for MNIST"
        assert "GAN 225" in figures_text(replace(m, data={**m.data, "name": "mnist"}))


def test_images_without_labels_are_compared_by_principal_components(digits_model, digits):
    unlabelled = replace(digits, dataset=replace(digits.dataset, labels=None))
    found = run(digits_model, unlabelled, replace(SMALL, search=False, baseline=False))
    assert found.figures["features"].endswith("principal components")
    ours = found.figures["samples"]["60 chains, mean"]
    assert "class entropy" not in ours and {"log-likelihood", "kernel distance"} <= set(ours)
    assert np.isfinite(numbers_in(found.figures)).all()


class TestTablesOfKnownLaw:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls, tiny_served, tiny_prepared):
        return run(tiny_served, tiny_prepared)

    def test_tables_have_no_pixel_or_class_figures(self, found):
        for figures in found.figures["samples"].values():
            assert not {"log-likelihood", "class entropy"} & set(figures)
        assert "classifier accuracy" not in found.figures and not found.class_names

    def test_samples_and_moments_are_compared_with_the_known_law(self, found):
        exact = found.figures["exact draws"]
        assert exact["rows"] == 200
        between = exact["sliced Wasserstein between exact sets"]
        assert exact["ratio"] == pytest.approx(exact["sliced Wasserstein"] / between)
        assert exact["ratio"] > 1.2, "a briefly trained model is not exact"
        assert set(found.figures["moments"]) == {"mean error", "tangent angle"}
        assert np.isfinite(numbers_in(found.figures)).all()

    def test_without_a_search_scales_stay(self, tiny_served, tiny_prepared):
        found = run(tiny_served, tiny_prepared, replace(SMALL, search=False, baseline=False))
        scale = tiny_served.manifest.kernels[tiny_served.manifest.default_kernel].scale
        assert found.scales == {} and found.figures["scale"] == scale
        assert "scales" not in found.figures and "k-means centres" not in found.figures["samples"]


def test_samples_of_the_exact_gaussian_model_have_the_right_law(exact):
    model, _, prepared = exact
    context = context_of(model, prepared, replace(SMALL, exact_rows=1_000, burn_in=30))
    assert compare_chains_with_law(context)["ratio"] == pytest.approx(1, abs=0.35)


def test_a_scale_that_the_recipe_fixes_is_not_searched(tiny_served, tiny_prepared):
    m = tiny_served.manifest
    fixed = {**m.recipe, "sampling": {**m.recipe["sampling"], "scales": {"gibbs": 0.7}}}
    model = Model(tiny_served.folder, replace(m, recipe=fixed), threads=1)
    found = run(model, tiny_prepared, replace(SMALL, baseline=False))
    assert "gibbs" not in found.scales and "moment" in found.scales


def test_data_that_the_model_was_not_trained_on_has_no_copies(digits_model, digits):
    m = digits_model.manifest
    other = replace(m, data={**m.data, "fingerprint": "sha256:another"})
    budget = replace(SMALL, search=False, baseline=False)
    found = run(Model(digits_model.folder, other, threads=1), digits, budget)
    assert "nearest training row" not in found.figures and found.copies is None
    assert "other real rows" in found.figures["samples"]


def test_a_model_whose_chains_diverge_is_reported_as_such(exact, tmp_path):
    model, _, prepared = exact
    wild = {k: replace(v, scale=1e6) for k, v in model.manifest.kernels.items()}
    model = Model(model.folder, replace(model.manifest, kernels=wild), threads=1)
    found = run(model, prepared, replace(SMALL, search=False))
    assert found.figures["samples"] == "its chains diverge"
    assert "exact draws" not in found.figures
    assert compare_chains_with_law(context_of(model, prepared, SMALL)) == DIVERGED
    assert draw_evaluation_plots(model, prepared.dataset, prepared.split, found, tmp_path) == []
    text = figures_text(replace(model.manifest, evaluation=found.figures))
    assert "No samples: its chains diverge." in text
