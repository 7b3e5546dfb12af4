"""The figures of `fit` are right where the answer is known."""

from dataclasses import replace

import numpy as np
import pytest

from localmoments.model import Model
from trainer.config import make_recipe
from trainer.errors import DataError
from trainer.evaluate import first_look, held_rows
from trainer.evaluate.known_law import moment_errors
from trainer.evaluate.run import draw_from_starts
from trainer.prepare import prepare


def test_the_first_look_has_figures_of_every_kernel_and_repeats(tiny_served, tiny_prepared):
    held = held_rows(tiny_prepared.dataset, tiny_prepared.split)
    figures = first_look(tiny_served, tiny_prepared.dataset, held)
    distances = figures["sliced Wasserstein"]
    assert set(distances) == {"training rows", *tiny_served.manifest.kernels}
    assert all(0 < v < np.inf for v in distances.values()), distances
    assert figures["reconstruction"] > 0 and figures["noise"] > 0
    assert set(figures["moments"]) == {"mean error", "tangent angle"}
    assert figures == first_look(tiny_served, tiny_prepared.dataset, held)


def test_data_of_another_width_is_refused(tiny_served):
    other = prepare(make_recipe({"name": "x", "data": {"source": "spiral", "rows": 50}}))
    with pytest.raises(DataError, match="but tiny@1 was made for 8"):
        first_look(tiny_served, other.dataset, held_rows(other.dataset, other.split))


def test_samples_depend_on_the_seed_alone(tiny_served, tiny_prepared):
    a, b = draw_from_starts(tiny_served, "gibbs", 30), draw_from_starts(tiny_served, "gibbs", 30)
    assert a.shape == (30, 8) and np.array_equal(a, b)
    assert not np.array_equal(a, draw_from_starts(tiny_served, "gibbs", 30, seed=2))


def test_the_exact_model_of_a_gaussian_has_no_error_against_the_truth(exact):
    model, truth, prepared = exact
    x = held_rows(prepared.dataset, prepared.split).test
    figures = moment_errors(model, truth, x)
    assert figures["mean error"] < 1e-5 and figures["tangent angle"] < 0.1


def test_a_wrong_noise_level_shows_in_the_error(exact):
    model, truth, prepared = exact
    x = held_rows(prepared.dataset, prepared.split).test
    wrong = Model(model.folder, replace(model.manifest, moments_sigma=1.5), threads=1)
    assert moment_errors(wrong, truth, x)["mean error"] > 0.01
