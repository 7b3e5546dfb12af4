"""The contractive criterion with the kernel's own noise on the code."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import make_kernels, training_scale
from trainer.config import make_recipe
from trainer.criteria import Criterion, kernel_noise, noise_levels, spread_scale
from trainer.export import set_up_chains
from trainer.fit import fit
from trainer.prepare import prepare
from trainer.run_folder import new_run

pytestmark = pytest.mark.usefixtures("double")

Maker = Callable[..., AutoEncoder]
Jacobian = Callable[..., Tensor]

CAE = Criterion("cae", "squared", 0.1, (0.3, 0.3), probes=0)
NOISY = replace(CAE, hidden_noise=(0.7, 0.7))
DEEP = Architecture(4, (6, 3), "tanh")


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def data(rows: int) -> Tensor:
    return torch.rand(rows, 4, generator=seeded(1))


def rms(x: Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


def rotation(size: float) -> AutoEncoder:
    """h = c Q x and back: a perfect auto-encoder of any contraction c."""
    ae = AutoEncoder(Architecture(4, (4,), "linear"))
    Q, _ = torch.linalg.qr(torch.randn(4, 4, generator=seeded(2)))
    weights = {"encoder.0.weight": size * Q, "decoder.0.weight": Q.T / size}
    ae.load_state_dict(weights | {k: torch.zeros(4) for k in ("encoder.0.bias", "decoder.0.bias")})
    return ae


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_an_encoder_cannot_escape_the_noise_by_contracting(size: float) -> None:
    """J_f J_fᵀ = c² I, so the noise is white; the error it leaves is ½ρ²d Var[x] for every c."""
    x = data(50)
    variance = rms(x - x.mean(0)) ** 2
    contraction = 4 * size**2
    got = NOISY(rotation(size), x, seeded(3)) - 0.1 * contraction
    assert got.item() == pytest.approx(0.5 * 0.7**2 * 4 * variance, rel=1e-6)


@pytest.mark.parametrize("architecture", [DEEP, Architecture(4, (5,), "silu", blocks=1)])
def test_the_noise_is_that_of_the_hidden_kernel(architecture: Architecture, make_ae: Maker) -> None:
    ae = make_ae(architecture)
    h = ae.encode(data(5))
    f = ae.linearise_encoder(ae.decode(h))
    ε = torch.randn(h.shape, generator=seeded(4))
    moved, _ = make_kernels(ae, 0.5)["hidden"](h, ε, torch.full((5, 1), 1.7))
    torch.testing.assert_close(f.value + 1.7 * kernel_noise(f, seeded(4)), moved)


def test_the_scaled_noise_is_as_large_as_the_codes_spread(make_ae: Maker) -> None:
    ae = make_ae(DEEP)
    f = ae.linearise_encoder(data(200))
    n = kernel_noise(f, seeded(5))
    spread = rms(f.value - f.value.mean(0))
    assert rms(spread_scale(f.value, n) * n) == pytest.approx(spread)
    assert rms(n) != pytest.approx(spread, rel=0.1)


def test_without_noise_it_is_equation_1(make_ae: Maker) -> None:
    ae, x = make_ae(DEEP), data(5)
    plain = CAE(ae, x, seeded(3))
    torch.testing.assert_close(replace(NOISY, hidden_noise=(0.0, 0.0))(ae, x, seeded(3)), plain)
    faint = replace(NOISY, hidden_noise=(1e-9, 1e-9))(ae, x, seeded(3))
    torch.testing.assert_close(faint, plain, rtol=1e-7, atol=0)
    assert NOISY(ae, x, seeded(3)).item() > 1.01 * plain.item()


@pytest.mark.parametrize(("floor", "again"), [(0.0, 0.0), (0.6, 0.0), (0.0, 0.5), (0.6, 0.5)])
@pytest.mark.parametrize("rho", [(0.7, 0.7), (0.3, 1.5)])
@pytest.mark.parametrize("walkback", [1, 3])
def test_it_equals_its_formula_and_the_noise_has_no_gradient(
    walkback: int, rho: tuple[float, float], floor: float, again: float,
    make_ae: Maker, jacobian_of: Jacobian,
) -> None:  # fmt: skip
    """Averaged along the hidden chain, at the first step's scale, each row at its own ρ."""
    ae, x, g = make_ae(DEEP), data(5), seeded(3)
    levels, start, losses, s, spread = noise_levels(5, rho, g), x, [], None, None
    contraction = jacobian_of(ae.encode, x, create_graph=True).square().sum((1, 2)).mean()
    for _ in range(walkback):
        f, J = ae.encode(start), jacobian_of(ae.encode, start)
        n = (J @ J.transpose(1, 2) @ torch.randn(5, 3, generator=g)[..., None])[..., 0].detach()
        spread = spread or rms(f - f.mean(0))
        s = s or spread / rms(n)
        white = torch.zeros(5, 3)
        if floor:
            white = floor * torch.rand(5, 1, generator=g) * torch.randn(5, 3, generator=g)
        r = ae.decode(f + levels * s * n + spread * white)
        start = r.detach()
        emitted, encoded = ((x - y).square().sum(1).mean() / 2 for y in (r, ae(start)))
        losses.append((emitted + again * encoded) / (1 + again))
    expected = torch.stack(losses).mean() + 0.1 * contraction
    criterion = replace(NOISY, walkback=walkback, hidden_noise=rho)
    got = replace(criterion, hidden_floor=floor, hidden_return=again)(ae, x, seeded(3))
    torch.testing.assert_close(got, expected)
    weights = dict(ae.named_parameters())
    ours = torch.autograd.grad(got, list(weights.values()))
    theirs = torch.autograd.grad(expected, list(weights.values()))
    for name, mine, other in zip(weights, ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)
        assert mine.abs().max() > 1e-5, name


def test_the_default_scale_of_hidden_is_the_noise_of_the_training(make_ae: Maker) -> None:
    ae, x = make_ae(DEEP), data(2000)
    s = training_scale(ae, x, (0.4, 0.9))
    f = ae.linearise_encoder(x)
    noise = s * kernel_noise(f, seeded(8))
    assert rms(noise) == pytest.approx(0.6 * rms(f.value - f.value.mean(0)), rel=0.05)


def test_a_recipe_with_hidden_noise_is_trained_and_gets_its_scale(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float32)
    body = {
        "name": "noisy",
        "data": {"source": "digits", "rows": 300},
        "model": {"hidden": [20, 10]},
        "criterion": {"kind": "cae", "loss": "cross-entropy", "alpha": 1e-3}
        | {"hidden_noise": [0.4, 0.9], "walkback": 2, "hidden_floor": 0.3, "hidden_return": 0.6},
        "training": {"epochs": 8, "batch": 32, "learning_rate": 1e-2, "average": 0.5},
    }
    recipe = make_recipe(body)
    prepared = prepare(recipe)
    assert prepared.criterion.hidden_noise == (0.4, 0.9)
    assert (prepared.criterion.hidden_floor, prepared.criterion.hidden_return) == (0.3, 0.6)
    run = new_run(tmp_path, recipe)
    ae = fit(recipe, prepared, run)
    rows = (run.path / "losses.csv").read_text().split()[1:]
    valid = [float(row.split(",")[3]) for row in rows]
    assert valid[-1] < valid[0]
    s = set_up_chains(recipe, prepared, ae).scales["hidden"]
    quieter = make_recipe(body | {"sampling": {"scales": {"hidden": s / 2}}})
    assert set_up_chains(quieter, prepared, ae).scales["hidden"] == s / 2
    half = make_recipe(body | {"criterion": body["criterion"] | {"hidden_noise": 0.3}})  # type: ignore[operator]
    assert set_up_chains(half, prepare(half), ae).scales["hidden"] == pytest.approx(s / 2)
