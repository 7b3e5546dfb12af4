"""Default scales of the kernels in closed form."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import calibrate_scale, default_scale, make_kernels

Maker = Callable[..., AutoEncoder]


def test_the_input_kernel_of_one_tied_linear_layer_is_calibrated_to_sigma(gaussian: Any) -> None:
    """There J_fᵀ J_f = J, so s J_fᵀ J_f ε moves as far as σ J ε where s = σ."""
    kernel = make_kernels(gaussian.ae, gaussian.sigma)["input"]
    assert calibrate_scale(kernel, torch.randn(20_000, 4)) == pytest.approx(0.6, rel=0.02)


def test_the_hidden_kernel_is_calibrated_through_its_decoder(gaussian: Any) -> None:
    """s² ‖Wᵀ W Wᵀ‖² = σ² ‖Wᵀ W‖² in eigenvalues: s² Σ a³ = σ² Σ a²."""
    kernel = make_kernels(gaussian.ae, gaussian.sigma)["hidden"]
    expected = 0.6 * ((gaussian.a**2).sum() / (gaussian.a**3).sum()) ** 0.5
    got = calibrate_scale(kernel, torch.randn(20_000, 4))
    assert got == pytest.approx(float(expected), rel=0.02)


def test_a_model_that_does_not_move_gets_scale_1() -> None:
    ae = AutoEncoder(Architecture(3, (4,), "tanh"))
    with torch.no_grad():
        ae.encoder[0].weight.zero_()  # type: ignore[union-attr, operator]
    assert calibrate_scale(make_kernels(ae, 0.5)["input"], torch.randn(5, 3)) == 1.0


def test_only_the_kernels_of_the_paper_are_calibrated(make_ae: Maker) -> None:
    kernels, x = make_kernels(make_ae(Architecture(3, (4,), "tanh")), 0.5), torch.randn(50, 3)
    scales = {name: default_scale(kernel, x) for name, kernel in kernels.items()}
    fixed = {"moment": 2**0.5, "gibbs": 1.0, "walkjump": 0.2}
    assert {k: v for k, v in scales.items() if k in fixed} == fixed
    assert scales["input"] == calibrate_scale(kernels["input"], x) > 0
    assert scales["hidden"] == calibrate_scale(kernels["hidden"], x) > 0
