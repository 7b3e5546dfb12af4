"""Figures that are right where the answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from service.core.manifest import START_POINTS, WEIGHTS, Graph
from service.engine.model import Model
from trainer.autoencoder import AutoEncoder
from trainer.config import make_recipe
from trainer.errors import DataError
from trainer.evaluate import against_truth, draw, evaluate, held_rows, sliced_wasserstein
from trainer.export import describe, make_chains
from trainer.graphs import model_graphs
from trainer.onnx_files import write_graph
from trainer.prepare import prepare


def cloud(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


class TestSlicedWasserstein:
    def test_is_zero_for_the_same_set_in_any_order(self):
        a = cloud(300, 5)
        assert sliced_wasserstein(a, a) == 0
        assert sliced_wasserstein(a, a[::-1]) == pytest.approx(0, abs=1e-12)

    def test_is_symmetric(self):
        a, b = cloud(300, 5), 2 * cloud(200, 5, seed=1) + 1
        assert sliced_wasserstein(a, b) == pytest.approx(sliced_wasserstein(b, a), rel=1e-12)

    @pytest.mark.parametrize("shift", [0.5, -3.0])
    def test_is_the_shift_in_one_dimension(self, shift):
        a = cloud(500, 1)
        assert sliced_wasserstein(a, a + shift) == pytest.approx(abs(shift), rel=1e-12)

    def test_is_the_mean_absolute_difference_of_sorted_points_in_one_dimension(self):
        a, b = cloud(101, 1), 3 * cloud(101, 1, seed=1)
        expected = np.abs(np.sort(a[:, 0]) - np.sort(b[:, 0])).mean()
        assert sliced_wasserstein(a, b) == pytest.approx(expected, rel=1e-12)

    def test_counts_a_point_by_its_share_and_not_by_its_number(self):
        a, b = np.array([[0.0], [1.0]]), np.array([[0.0], [0.0], [1.0], [1.0]])
        assert sliced_wasserstein(a, b) == sliced_wasserstein(b, a) == 0

    def test_of_two_gaussians_is_the_difference_of_widths(self):
        """W₁(N(0, s²), N(0, t²)) = |s - t| √(2/π), the same along every direction."""
        a, b = cloud(20_000, 3), 2.5 * cloud(20_000, 3, seed=1)
        assert sliced_wasserstein(a, b) == pytest.approx(1.5 * np.sqrt(2 / np.pi), rel=0.03)

    def test_of_a_shift_in_d_dimensions_is_its_mean_projection(self):
        """E|v·e| over the sphere in d = 3 is 1/2."""
        a = cloud(200, 3)
        moved = sliced_wasserstein(a, a + np.array([0, 0, 4.0]))
        assert moved == pytest.approx(4 * 0.5, rel=0.1)


def test_figures_are_finite_repeatable_and_have_every_kernel(tiny_served, tiny_prepared):
    figures = evaluate(tiny_served, tiny_prepared.dataset, tiny_prepared.split)
    distances = figures["sliced Wasserstein"]
    assert set(distances) == {"training rows", *tiny_served.manifest.kernels}
    assert all(0 < v < np.inf for v in distances.values()), distances
    assert figures["reconstruction"] > 0 and figures["noise"] > 0
    assert set(figures["moments"]) == {"mean error", "tangent angle"}
    assert figures == evaluate(tiny_served, tiny_prepared.dataset, tiny_prepared.split)


def test_data_of_another_width_is_refused(tiny_served):
    other = prepare(make_recipe({"name": "x", "data": {"source": "spiral", "rows": 50}}))
    with pytest.raises(DataError, match="but tiny@1 was made for 8"):
        evaluate(tiny_served, other.dataset, other.split)


def test_rows_to_judge_by_were_never_learnt_from(tiny_prepared):
    held = held_rows(tiny_prepared.dataset, tiny_prepared.split)
    seen = {row.tobytes() for row in held.train}
    assert len(held.test) == 40 and not any(row.tobytes() in seen for row in held.test)


def test_draws_are_in_the_users_units_and_repeat(tiny_served, tiny_prepared):
    a, b = draw(tiny_served, "gibbs", 30), draw(tiny_served, "gibbs", 30)
    assert a.shape == (30, 8) and np.array_equal(a, b)
    assert not np.array_equal(a, draw(tiny_served, "gibbs", 30, seed=2))


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """The best auto-encoder for the built-in Gaussian, as graphs: r(z) = A z + (I - A) m."""
    recipe = make_recipe({
        "name": "exact", "data": {"source": "gaussian", "rows": 500},
        "model": {"hidden": [1], "unit": "linear", "tied": False, "decoder": "linear"},
        "criterion": {"kind": "dae", "sigma": 0.5},
    })  # fmt: skip
    prepared = prepare(recipe)
    truth, normaliser, d = prepared.dataset.truth, prepared.normaliser, prepared.dataset.dims
    D = normaliser.scale
    C = truth.covariances[0] / np.outer(D, D)
    m = (truth.means[0] - normaliser.shift) / D
    A = C @ np.linalg.inv(C + 0.25 * np.eye(d))
    prepared = replace(prepared, architecture=replace(prepared.architecture, hidden=(d,)))
    ae = AutoEncoder(prepared.architecture).eval()
    weights = {"encoder.0.weight": A, "encoder.0.bias": m - A @ m,
               "decoder.0.weight": np.eye(d), "decoder.0.bias": np.zeros(d)}  # fmt: skip
    ae.load_state_dict({k: torch.from_numpy(v).float() for k, v in weights.items()})
    folder = tmp_path_factory.mktemp("exact")
    chains = make_chains(recipe, prepared, ae)
    save_file({**ae.state_dict(), START_POINTS: chains.starts.contiguous()}, folder / WEIGHTS)
    graphs = {}
    for name in ("reconstruct", "moments"):
        spec = model_graphs(ae)[name]
        graphs[name] = Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
    manifest = describe(recipe, prepared, ae, chains, "1", graphs)
    return Model(folder, manifest, threads=1), truth, prepared


def test_the_exact_model_of_a_gaussian_has_no_error_against_the_truth(exact):
    model, truth, prepared = exact
    x = held_rows(prepared.dataset, prepared.split).test
    figures = against_truth(model, truth, x)
    assert figures["mean error"] < 1e-5 and figures["tangent angle"] < 0.1


def test_a_wrong_noise_level_shows_in_the_error(exact):
    model, truth, prepared = exact
    x = held_rows(prepared.dataset, prepared.split).test
    wrong = Model(model.folder, replace(model.manifest, sigma=1.5), threads=1)
    assert against_truth(wrong, truth, x)["mean error"] > 0.01
