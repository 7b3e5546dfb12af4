"""The contracted reconstruction, measured beside the data."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.config import make_recipe
from trainer.criteria import Criterion
from trainer.export import set_up_chains
from trainer.fit import fit
from trainer.prepare import prepare
from trainer.run_folder import new_run

pytestmark = pytest.mark.usefixtures("double")

Maker = Callable[..., AutoEncoder]
Jacobian = Callable[..., Tensor]

NOISY = Criterion("rcae", "squared", 0.1, (0.3, 0.3), probes=0, input_noise=0.5)
DEEP = Architecture(4, (6, 3), "tanh")


def derive_seed(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def data(rows: int) -> Tensor:
    return torch.rand(rows, 4, generator=derive_seed(1))


def test_error_and_contraction_are_both_measured_at_the_corrupted_point(
    make_ae: Maker, jacobian_of: Jacobian
) -> None:
    ae, x = make_ae(DEEP), data(5)
    y = x + 0.5 * torch.randn(x.shape, generator=derive_seed(3))
    expected = (x - ae(y)).square().sum(1) + 0.1 * jacobian_of(ae, y).square().sum((1, 2))
    torch.testing.assert_close(NOISY(ae, x, derive_seed(3)), expected.mean())


def test_without_noise_it_is_the_papers_criterion_and_draws_nothing(
    make_ae: Maker, jacobian_of: Jacobian
) -> None:
    ae, x, g = make_ae(DEEP), data(5), derive_seed(3)
    expected = (x - ae(x)).square().sum(1) + 0.1 * jacobian_of(ae, x).square().sum((1, 2))
    torch.testing.assert_close(replace(NOISY, input_noise=0.0)(ae, x, g), expected.mean())
    assert torch.equal(g.get_state(), derive_seed(3).get_state())


def gradient_at(level: float, C: Tensor) -> Tensor:
    """∂/∂A of the criterion on N(0, C) at A = C (C + level)⁻¹."""
    ae = AutoEncoder(Architecture(3, (3,), "linear"))
    A = C @ torch.linalg.inv(C + level * torch.eye(3))
    weights = {"encoder.0.weight": torch.eye(3), "decoder.0.weight": A}
    ae.load_state_dict(weights | {k: torch.zeros(3) for k in ("encoder.0.bias", "decoder.0.bias")})
    x = torch.randn(400_000, 3, generator=derive_seed(1)) @ torch.linalg.cholesky(C).T
    weight = ae.decoder[0].weight
    assert isinstance(weight, Tensor)
    (gradient,) = torch.autograd.grad(NOISY(ae, x, derive_seed(2)), [weight])
    return gradient


def test_on_gaussian_data_the_best_linear_model_is_that_of_noise_and_penalty_together() -> None:
    """A = C (C + (σ² + α) I)⁻¹; neither σ² nor α alone is the level."""
    C = torch.tensor([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 0.05]])
    assert gradient_at(0.25 + 0.1, C).abs().max() < 0.01
    assert gradient_at(0.25, C).abs().max() > 0.05
    assert gradient_at(0.1, C).abs().max() > 0.05


def test_a_recipe_with_input_noise_is_trained_and_serves_the_sum(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float32)
    recipe = make_recipe({
        "name": "noisy",
        "data": {"source": "mixture", "rows": 200},
        "model": {"hidden": [8]},
        "criterion": {"kind": "rcae", "alpha": 0.07, "input_noise": 0.3},
        "training": {"epochs": 1},
    })  # fmt: skip
    prepared = prepare(recipe)
    assert prepared.criterion.input_noise == 0.3
    ae = fit(recipe, prepared, new_run(tmp_path, recipe))
    assert set_up_chains(recipe, prepared, ae).sigma == pytest.approx(0.4)
