"""Step sizes in closed form, and start points as a plain walk."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from localmoments.noise import normals
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_setup import (
    SETTLING_STEPS,
    calibrated_scale,
    default_scale,
    start_points,
    walked,
)
from trainer.graphs import make_kernels

Maker = Callable[..., AutoEncoder]


def test_the_input_kernel_of_one_tied_linear_layer_is_calibrated_to_sigma(gaussian: Any) -> None:
    """There J_fᵀ J_f = J, so s J_fᵀ J_f ε moves as far as σ J ε where s = σ."""
    kernel = make_kernels(gaussian.ae, gaussian.sigma)["input"]
    assert calibrated_scale(kernel, torch.randn(20_000, 4)) == pytest.approx(0.6, rel=0.02)


def test_the_hidden_kernel_is_calibrated_through_its_decoder(gaussian: Any) -> None:
    """s² ‖Wᵀ W Wᵀ‖² = σ² ‖Wᵀ W‖² in eigenvalues: s² Σ a³ = σ² Σ a²."""
    kernel = make_kernels(gaussian.ae, gaussian.sigma)["hidden"]
    expected = 0.6 * ((gaussian.a**2).sum() / (gaussian.a**3).sum()) ** 0.5
    got = calibrated_scale(kernel, torch.randn(20_000, 4))
    assert got == pytest.approx(float(expected), rel=0.02)


def test_a_model_that_does_not_move_gets_scale_one() -> None:
    ae = AutoEncoder(Architecture(3, (4,), "tanh"))
    with torch.no_grad():
        ae.encoder[0].weight.zero_()  # type: ignore[union-attr, operator]
    assert calibrated_scale(make_kernels(ae, 0.5)["input"], torch.randn(5, 3)) == 1.0


def test_only_the_papers_kernels_are_calibrated(make_ae: Maker) -> None:
    kernels, x = make_kernels(make_ae(Architecture(3, (4,), "tanh")), 0.5), torch.randn(50, 3)
    scales = {name: default_scale(kernel, x) for name, kernel in kernels.items()}
    fixed = {"moment": 2**0.5, "gibbs": 1.0, "walkjump": 0.2}
    assert {k: v for k, v in scales.items() if k in fixed} == fixed
    assert scales["input"] == calibrated_scale(kernels["input"], x) > 0
    assert scales["hidden"] == calibrated_scale(kernels["hidden"], x) > 0


@pytest.mark.parametrize("conditioned", [False, True])
@pytest.mark.parametrize("name", ["hidden", "gibbs"])
@pytest.mark.parametrize("emit", ["mean", "noisy"])
def test_a_walk_is_the_kernel_applied_to_the_noise_of_each_step(
    emit: str, name: str, conditioned: bool, make_ae: Maker
) -> None:
    """The noisy emission is the state itself, where that lies in the space of inputs."""
    ae = make_ae(Architecture(3, (4,), "tanh", conditioned=conditioned))
    kernel, x = make_kernels(ae, 0.5)[name], torch.randn(6, 3)
    level = torch.full((6, 1), 0.5) if conditioned else None
    with torch.no_grad():
        state = ae.encode(x, level) if name == "hidden" else x
        expected = []
        for step in range(4):
            noise = torch.from_numpy(normals(9, step, (6, kernel.noise)))
            state, mean = kernel(state, noise, torch.full((6, 1), 0.8))
            expected.append(state if (emit, name) == ("noisy", "gibbs") else mean)
    got = walked(kernel, x, 0.8, 4, emit=emit, seed=9)
    assert got.shape == (4, 6, 3) and not got.requires_grad
    torch.testing.assert_close(got, torch.stack(expected))


def test_start_points_are_where_a_settled_walk_stands(make_ae: Maker) -> None:
    kernel = make_kernels(make_ae(Architecture(3, (4,), "tanh")), 0.5)["gibbs"]
    x = torch.randn(6, 3)
    points = start_points(kernel, x, 1.0)
    assert torch.equal(points, walked(kernel, x, 1.0, SETTLING_STEPS)[-1])
    assert points.shape == x.shape and torch.isfinite(points).all()
