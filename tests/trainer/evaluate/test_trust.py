"""The noise level for clean rows: where it is known, and in every model that we ship."""

from pathlib import Path

import numpy as np
import pytest

from localmoments import artefact as manifests
from localmoments.artefact import PERCENTILES
from localmoments.model import Model
from localmoments.trust import find_percentile, typicality_statistics
from trainer.data import load, split
from trainer.evaluate.command import data_options
from trainer.evaluate.trust import (
    find_clean_level,
    largest_passing_level,
    levels_between,
    passes_trace_test,
    reconstruction_figures,
    squared_errors,
    typical_quantiles,
)

MODELS = Path(__file__).parents[3] / "models"
SHIPPED = sorted(path.parent for path in MODELS.glob("*/*/manifest.json"))
ROWS = np.random.default_rng(0).standard_normal((500, 3)).astype(np.float32)


def posterior_mean(z, sigma):
    """Of N(0, I) seen through noise σ."""
    return z / np.float32(1 + sigma**2)


def test_clean_rows_pass_if_r_is_the_posterior_mean():
    """‖x − r(x)‖² is σ⁴‖x‖²/(1 + σ²)², on average σ²/(1 + σ²) of the denoising error."""
    for sigma in (0.1, 0.5, 2.0):
        clean, noisy = squared_errors(posterior_mean, ROWS, sigma)
        np.testing.assert_allclose(
            clean, np.square(ROWS).sum(1) * sigma**4 / (1 + sigma**2) ** 2, rtol=1e-4
        )
        np.testing.assert_allclose(noisy.mean(), 3 * sigma**2 / (1 + sigma**2), rtol=0.15)
        assert clean.mean() < noisy.mean()
    assert largest_passing_level(posterior_mean, ROWS, [0.1, 0.2, 0.4]) == 0.4


def test_one_bad_answer_in_five_hundred_fails_the_level():
    """The maximum shows it; the mean and the 99th percentile do not."""

    def reconstruct(z, sigma):
        r = posterior_mean(z, sigma)
        return np.where((sigma > 0.3) & (z == ROWS[7]).all(1, keepdims=True), 3.0, r).astype("f4")

    clean, noisy = squared_errors(reconstruct, ROWS, 0.4)
    assert clean.mean() < noisy.mean() and np.quantile(clean, 0.99) < np.quantile(noisy, 0.99)
    assert not passes_trace_test(clean, noisy)
    assert largest_passing_level(reconstruct, ROWS, [0.1, 0.2, 0.4]) == 0.2


def test_the_smallest_level_is_chosen_if_none_passes():
    def worse(z, sigma):
        return np.where(np.isin(z, ROWS), z + 9, z).astype("f4")

    assert largest_passing_level(worse, ROWS, [0.1, 0.5]) == 0.1


def test_levels_ascend_from_the_lowest_to_that_of_chains():
    levels = levels_between(0.25, 1.0, 0.8)
    assert levels[0] == 0.25 and levels[-1] == 0.8 and levels == sorted(levels)
    assert levels_between(0.25, 0.8, 0.8)[-1] == 0.8 and len(levels_between(0.2, 0.8, 0.8)) == 9
    assert levels_between(0.3, 0.8, 0.3) == [0.3]


def test_a_model_of_one_level_has_no_choice(exact):
    model, _, prepared = exact
    rows = model.manifest.normaliser.to_model(prepared.dataset.source.take(np.arange(100)))
    assert find_clean_level(model, rows) == model.manifest.sigma


def test_percentiles_are_those_of_the_statistic(exact):
    model, _, prepared = exact
    rows = model.manifest.normaliser.to_model(prepared.dataset.source.take(np.arange(700)))
    got = typical_quantiles(model, rows, 0.5)
    t = typicality_statistics(model, rows, 0.5)
    assert len(got) == PERCENTILES and list(got) == sorted(got)
    np.testing.assert_allclose([got[0], got[50], got[100]], np.quantile(t, [0, 0.5, 1]))


def held_out(folder: Path):
    """A shipped model, and its held-out rows in the model's units."""
    model = Model.open(folder, threads=1)
    options = data_options(model.manifest.recipe["data"], None)
    dataset = load(options, None)
    return model, dataset.source.take(split(dataset, options).held_out)


@pytest.mark.parametrize("name", ["digits-dae", "spiral-dae"])
def test_held_out_rows_of_a_shipped_model_pass_at_its_level(name):
    """For models whose data is built in; the others have their figures in the manifest."""
    model, x = held_out(MODELS / name / "1")
    m, z = model.manifest, model.manifest.normaliser.to_model(x)
    assert find_clean_level(model, z) == m.moments_sigma
    figures = reconstruction_figures(model, x.astype(np.float64))
    assert figures["reconstruction"] <= figures["denoising"] < figures["noise"]
    ranks = [
        find_percentile(t, m.typical) for t in typicality_statistics(model, z, m.moments_sigma)
    ]
    # Half of the 180 digits set the percentiles, so those of all are off by a few percent.
    assert 45 < np.median(ranks) < 55 and np.mean(np.array(ranks) >= 99.5) < 0.03


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.parent.name)
def test_reconstruction_errs_no_more_than_denoising_in_every_shipped_model(folder):
    """As recorded on held-out rows, at the level for clean rows."""
    m = manifests.read(folder)
    assert 0 < m.evaluation["reconstruction"] <= m.evaluation["denoising"]
    assert len(m.typical) == PERCENTILES
    if m.noise_levels is not None:
        assert m.noise_levels[0] <= m.moments_sigma <= m.sigma
