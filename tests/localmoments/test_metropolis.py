"""The Metropolis correction: on Gaussian data even long steps keep the smoothed law exactly."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localmoments.arrays import Arrays, Floats
from localmoments.chain import advance, positions
from localmoments.chain_state import Transition
from localmoments.model import Model

C, ALPHA = np.array([[1.0, 0.6], [0.6, 0.8]]), 0.25
SMOOTHED = C + ALPHA * np.eye(2)


class Normal(Model):
    """The graphs of a model of N(0, C), in closed form."""

    def __init__(self, like: Model) -> None:
        manifest = replace(
            like.manifest, input_dims=2, sigma=ALPHA**0.5, alpha=ALPHA, noise_levels=(0.1, 1.0)
        )
        super().__init__(Path(), manifest)

    def run(self, graph: str, **inputs: Any) -> Arrays:
        A = np.linalg.solve(SMOOTHED, C)
        root = np.linalg.cholesky((A + A.T) / 2)
        if graph in ("walkjump", "moment"):
            x, s = inputs["state"], inputs["scale"]
            σ, noise = ALPHA**0.5, inputs["noise"][:, :2]
            step = s * (x @ A - x) + np.sqrt(2 * s) * σ * noise
            out = x + step if graph == "walkjump" else x @ A + s * σ * noise @ root.T
            return {"next": out.astype(np.float32), "mean": out.astype(np.float32)}
        return {
            name: (inputs[given] @ A).astype(np.float32)
            for name, given in (("mean", "x"), ("products", "v"))
            if given in inputs
        }


def covariance(model: Model, walk: Transition) -> Floats:
    x = np.zeros((800, 2), np.float32)
    states = np.array([p.state for p in positions(model, walk, x, 70) if p.step > 20])
    return np.cov(states.reshape(-1, 2).T)


@pytest.mark.parametrize(("kernel", "scale"), [("walkjump", 0.9), ("moment", 1.8)])
def test_a_long_step_is_biased_and_the_correction_takes_the_bias_away(
    tiny_served: Model, kernel: str, scale: float
) -> None:
    model = Normal(tiny_served)
    plain = covariance(model, Transition(kernel, 1, (scale,)))
    corrected = covariance(model, Transition(kernel, 1, (scale,), metropolis=True))
    assert np.abs(plain - SMOOTHED).max() > 0.15
    np.testing.assert_allclose(corrected, SMOOTHED, atol=0.07)


@pytest.mark.parametrize("kernel", ["walkjump", "moment"])
def test_a_refused_walker_stays_and_accepted_ones_are_counted(
    tiny_served: Model, kernel: str
) -> None:
    model = Normal(tiny_served)
    x = np.random.default_rng(0).multivariate_normal([0, 0], SMOOTHED, 300).astype(np.float32)
    position = advance(model, Transition(kernel, 1, (1.2,), metropolis=True), x, 0)
    moved = (position.state != x).any(axis=1)
    assert 0 < position.accepted == moved.sum() < 300
    np.testing.assert_allclose(
        position.mean, model.run("reconstruct", x=position.state)["mean"], atol=1e-5
    )


@pytest.mark.parametrize("kernel", ["walkjump", "moment"])
@pytest.mark.parametrize("rows", [1, 7, 33])
def test_corrected_rows_have_the_same_bits_alone_or_with_others(
    tiny_served: Model, kernel: str, rows: int
) -> None:
    x = np.tile(tiny_served.start_points(), (10, 1))[:64]
    walk = Transition(kernel, 5, (tiny_served.manifest.kernels[kernel].scale,), metropolis=True)
    for few, all_of_them in zip(
        positions(tiny_served, walk, x[:rows], 3), positions(tiny_served, walk, x, 3), strict=True
    ):
        assert np.array_equal(few.state, all_of_them.state[:rows])
        assert np.array_equal(few.mean, all_of_them.mean[:rows])
