"""The criteria against their formulas, with every derivative taken by autograd."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.criteria import Criterion, encoder_contraction, noise_levels, squared_frobenius
from trainer.layers import UNITS

pytestmark = pytest.mark.usefixtures("double")

Maker = Callable[..., AutoEncoder]
Jacobian = Callable[..., Tensor]

DAE = Criterion("dae", "squared", 0.1, (0.3, 0.3))
CAE = Criterion("cae", "squared", 0.1, (0.3, 0.3), probes=0)
RCAE = Criterion("rcae", "squared", 0.1, (0.3, 0.3), probes=0)
DEEP = Architecture(4, (6, 3), "tanh")


def derive_seed(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def data(rows: int, dims: int = 4) -> Tensor:
    return torch.rand(rows, dims, generator=derive_seed(1))


@pytest.mark.parametrize("unit", UNITS)
def test_the_contraction_of_one_layer_and_its_gradient_equal_autograd(
    unit: str, make_ae: Maker, jacobian_of: Jacobian, generator: Generator
) -> None:
    ae, x = make_ae(Architecture(4, (6,), unit, tied=True)), data(5)
    penalty, h = encoder_contraction(ae, x, 1, generator)
    expected = jacobian_of(ae.encode, x, create_graph=True).square().sum((1, 2))
    torch.testing.assert_close(h, ae.encode(x))
    torch.testing.assert_close(penalty, expected)
    weights = [ae.encoder[0].weight, ae.encoder[0].bias]  # type: ignore[list-item]
    ours = torch.autograd.grad(penalty.sum(), weights, materialize_grads=True)
    theirs = torch.autograd.grad(expected.sum(), weights, materialize_grads=True)
    for got, want in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, want)
    assert ours[0].abs().max() > 1e-3


@pytest.mark.parametrize("architecture", [DEEP, Architecture(4, (5,), "silu", blocks=1)])
def test_the_contraction_of_a_deep_encoder_and_its_gradient_equal_autograd(
    architecture: Architecture, make_ae: Maker, jacobian_of: Jacobian, generator: Generator
) -> None:
    ae, x = make_ae(architecture), data(5)
    penalty, _ = encoder_contraction(ae, x, 0, generator)
    expected = jacobian_of(ae.encode, x, create_graph=True).square().sum((1, 2))
    torch.testing.assert_close(penalty, expected)
    weights = [p for name, p in ae.encoder.named_parameters() if name.endswith("weight")]
    ours = torch.autograd.grad(penalty.sum(), weights)
    for got, want in zip(ours, torch.autograd.grad(expected.sum(), weights), strict=True):
        assert got.abs().max() > 1e-4
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("probes", [1, 4])
def test_hutchinsons_expectation_is_the_exact_sum(
    probes: int, make_ae: Maker, generator: Generator
) -> None:
    """Var[vᵀ M v] = 2 Σ_{i≠j} M_ij² for random signs v, so five standard errors are known."""
    ae, x, rows = make_ae(DEEP), data(1), 40_000
    at = ae.linearise(x)
    J = at.jvp(torch.eye(4)[None])[0].T  # (d, d)
    off = (J.T @ J) * (1 - torch.eye(4))
    error = (2 * off.square().sum() / (rows * probes)).sqrt()
    many = x.expand(rows, 4)
    probed = squared_frobenius(ae.linearise(many), many, probes, generator)
    exact = squared_frobenius(at, x, 0, generator)
    torch.testing.assert_close(exact, J.square().sum()[None])
    assert error < 0.01 * exact[0]
    assert (probed.mean() - exact[0]).abs() < 5 * error
    assert probed.std() > 0.5 * error * rows**0.5


def test_probes_share_their_gradient_with_the_exact_sum(
    make_ae: Maker, generator: Generator
) -> None:
    ae, x = make_ae(DEEP), data(2)
    weights = [p for name, p in ae.named_parameters() if name.endswith("weight")]

    def gradient(probes: int) -> Tensor:
        total = squared_frobenius(ae.linearise(x), x, probes, generator).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(total, weights)])

    exact, probed = gradient(0), gradient(40_000)
    assert (probed - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("architecture", [Architecture(4, (6,), "sigmoid", tied=True), DEEP])
def test_cae_is_half_the_squared_error_plus_the_encoders_contraction(
    architecture: Architecture, make_ae: Maker, jacobian_of: Jacobian, generator: Generator
) -> None:
    ae, x = make_ae(architecture), data(5)
    contraction = jacobian_of(ae.encode, x).square().sum((1, 2))
    expected = (0.5 * (x - ae(x)).square().sum(1) + 0.1 * contraction).mean()
    torch.testing.assert_close(CAE(ae, x, generator), expected)


def test_rcae_is_the_squared_error_plus_the_reconstructions_contraction(
    make_ae: Maker, jacobian_of: Jacobian, generator: Generator
) -> None:
    ae, x = make_ae(DEEP), data(5)
    contraction = jacobian_of(ae, x).square().sum((1, 2))
    expected = ((x - ae(x)).square().sum(1) + 0.1 * contraction).mean()
    torch.testing.assert_close(RCAE(ae, x, generator), expected)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_twice_the_dae_tends_to_the_rcae_with_an_error_of_the_fourth_order(
    seed: int, make_ae: Maker, generator: Generator
) -> None:
    """Eq. 3. Where r(x) = x, the two differ by a term of order σ⁴, α = σ².

    ‖J ε‖² is taken on the draws that the criterion makes, because its own sampling error, of
    order σ², would hide the fourth.
    """
    ae, x = make_ae(Architecture(2, (5,), "tanh"), seed), torch.tensor([[0.3, -0.2]])
    rows = x.expand(1_000_000, 2)
    with torch.no_grad():
        ae.decoder[-1].bias.add_((x - ae(x))[0])  # type: ignore[union-attr, operator]
        at = ae.linearise(x)
        exact = float(squared_frobenius(at, x, 0, generator))
        drawn = float(
            at.jvp(torch.randn(1, *rows.shape, generator=derive_seed(5))).square().sum(2).mean()
        )

        def difference(sigma: float) -> float:
            rcae = float(replace(RCAE, alpha=sigma**2)(ae, x, generator))
            dae = float(replace(DAE, sigma=(sigma, sigma))(ae, rows, derive_seed(5)))
            return 2 * dae - (rcae + sigma**2 * (drawn - exact))

        wide, narrow = difference(0.1), difference(0.05)
    assert drawn == pytest.approx(exact, rel=0.01)
    assert abs(narrow) < 0.01 * 0.05**2 * exact
    assert math.log2(wide / narrow) == pytest.approx(4, abs=0.35)


def test_cross_entropy_is_its_formula_and_finite_at_the_ends(
    make_ae: Maker, generator: Generator
) -> None:
    ae, x = make_ae(Architecture(4, (6,), "sigmoid", "sigmoid")), data(5)
    r = ae(x)
    rows = -(x * r.log() + (1 - x) * (1 - r).log()).sum(1)
    penalty, _ = encoder_contraction(ae, x, 1, generator)
    crossed = replace(CAE, loss="cross-entropy")
    torch.testing.assert_close(crossed(ae, x, generator), (rows + 0.1 * penalty).mean())
    with torch.no_grad():
        ae.decoder[-1].bias.fill_(900.0)  # type: ignore[union-attr, operator]
    penalty, _ = encoder_contraction(ae, torch.zeros(1, 4), 1, generator)
    saturated = crossed(ae, torch.zeros(1, 4), generator) - 0.1 * penalty.mean()
    assert saturated.item() == pytest.approx(3600, rel=0.01)  # -log(1 - s(a)) → a


@pytest.mark.parametrize("walkback", [1, 3])
def test_walkback_averages_the_losses_along_the_chain(walkback: int, make_ae: Maker) -> None:
    """One step of it is the plain criterion of eq. 2."""
    ae, x = make_ae(DEEP), data(5)
    g, start, losses = derive_seed(3), x, []
    for _ in range(walkback):
        r = ae(start + 0.3 * torch.randn(x.shape, generator=g))
        losses.append(0.5 * (x - r).square().sum(1).mean())
        start = r.detach()
    got = replace(DAE, walkback=walkback)(ae, x, derive_seed(3))
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(got, expected)
    for ours, theirs in zip(
        torch.autograd.grad(got, list(ae.parameters())),
        torch.autograd.grad(expected, list(ae.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_conditioned_model_gets_the_noise_level_of_each_row(make_ae: Maker) -> None:
    """Over a range, a row counts by σ̄/σ, with σ̄ the range's geometric middle."""
    ae, x = make_ae(replace(DEEP, conditioned=True)), data(5)
    got = replace(DAE, sigma=(0.1, 2.5))(ae, x, derive_seed(4))
    g = derive_seed(4)
    sigma = noise_levels(5, (0.1, 2.5), g)
    r = ae(x + sigma * torch.randn(x.shape, generator=g), sigma)
    rows = 0.5 * (x - r).square().sum(1)
    torch.testing.assert_close(got, (rows * 0.5 / sigma[:, 0]).mean())


def test_gaussian_corruption_has_standard_deviation_sigma(generator: Generator) -> None:
    x, sigma = data(2).repeat(1, 50_000), torch.tensor([[0.5], [2.0]])
    noise = DAE.corrupt(x, sigma, generator) - x
    torch.testing.assert_close(noise.std(1), sigma[:, 0], rtol=0.01, atol=0)
    assert (noise.mean(1).abs() < 4 * sigma[:, 0] / 200_000**0.5).all()


@pytest.mark.parametrize("amount", [0.0, 0.25, 0.8])
def test_masking_sets_the_given_fraction_to_zero(amount: float, generator: Generator) -> None:
    x = data(1000, 100) + 1
    noisy = replace(DAE, corruption="masking", amount=amount).corrupt(
        x, torch.zeros(1000, 1), generator
    )
    hit = noisy != x
    assert (noisy[hit] == 0).all()
    assert float(hit.double().mean()) == pytest.approx(amount, abs=0.006)


def test_salt_and_pepper_sets_the_given_fraction_to_either_end(generator: Generator) -> None:
    x = data(1000, 100)
    noisy = replace(DAE, corruption="salt-and-pepper", amount=0.4).corrupt(
        x, torch.zeros(1000, 1), generator
    )
    hit = noisy != x
    salt, pepper = noisy[hit] == x.max(), noisy[hit] == x.min()
    assert (salt | pepper).all()
    assert float(hit.double().mean()) == pytest.approx(0.4, abs=0.007)
    assert float(salt.double().mean()) == pytest.approx(0.5, abs=0.012)


def test_noise_levels_are_log_uniform_in_their_range(generator: Generator) -> None:
    levels = noise_levels(100_000, (0.05, 2.0), generator)
    assert levels.shape == (100_000, 1)
    u = torch.sort((levels[:, 0] / 0.05).log() / torch.tensor(40.0).log()).values
    assert u[0] > -1e-9 and u[-1] < 1 + 1e-9
    uniform = (torch.arange(100_000) + 0.5) / 100_000
    assert float((u - uniform).abs().max()) < 1.95 / 100_000**0.5  # Kolmogorov, 1 in 1000
    assert (noise_levels(3, (0.3, 0.3), generator) == 0.3).all()


@pytest.mark.parametrize("criterion", [DAE, CAE, replace(RCAE, probes=2)])
def test_a_criterion_is_a_function_of_its_generator(criterion: Criterion, make_ae: Maker) -> None:
    ae, x = make_ae(DEEP), data(5)
    one, same = criterion(ae, x, derive_seed(2)), criterion(ae, x, derive_seed(2))
    assert torch.equal(one, same) and one.shape == ()
