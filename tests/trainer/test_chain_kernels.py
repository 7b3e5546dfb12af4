"""Kernels in closed form on Gaussian data, and one conformance test that runs them all.

With the optimal r(x) = m + A (x - m) every kernel is affine in (state, noise), so its stationary
law follows from a discrete Lyapunov equation and no sampling is needed:

    s' = S s + N ε + b        mean (I - S)⁻¹ b        Σ = S Σ Sᵀ + N Nᵀ
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import KERNELS, Kernel, make_kernels
from trainer.covariance_roots import FLOOR
from trainer.layers import Linearisation

pytestmark = pytest.mark.usefixtures("double")

Maker = Callable[..., AutoEncoder]
Matrix = NDArray[np.float64]

ARCHITECTURES = {
    "tied": Architecture(4, (6,), "sigmoid", tied=True),
    "deep": Architecture(4, (6, 5), "tanh", "sigmoid"),
    "conditioned": Architecture(4, (6,), "silu", blocks=1, conditioned=True),
}


def state_dims(kernel: Kernel) -> int:
    a = kernel.ae.architecture
    return a.hidden[-1] if kernel.space == "hidden" else a.dims


@torch.no_grad()
def step(kernel: Kernel, state: Tensor, noise: Tensor, scale: float) -> Matrix:
    following, _ = kernel(state, noise, torch.full((len(state), 1), scale))
    return np.asarray(following.numpy())


def affine(kernel: Kernel, scale: float) -> tuple[Matrix, Matrix, Matrix]:
    """S, N and b, read off the module itself."""
    n, q = state_dims(kernel), kernel.noise
    b = step(kernel, torch.zeros(1, n), torch.zeros(1, q), scale)
    S = step(kernel, torch.eye(n), torch.zeros(n, q), scale) - b
    N = step(kernel, torch.zeros(q, n), torch.eye(q), scale) - b
    return S.T, N.T, b[0]


def stationary(kernel: Kernel, scale: float) -> tuple[Matrix, Matrix]:
    """Mean and covariance that the chain settles into."""
    S, N, b = affine(kernel, scale)
    n = len(b)
    mean = np.linalg.solve(np.eye(n) - S, b)
    Σ = np.linalg.solve(np.eye(n * n) - np.kron(S, S), (N @ N.T).reshape(-1))
    return mean, Σ.reshape(n, n)


def test_gibbs_keeps_a_gaussian_exactly(gaussian: Any) -> None:
    kernel = make_kernels(gaussian.ae, gaussian.sigma)["gibbs"]
    S, N, b = affine(kernel, 1.0)
    np.testing.assert_allclose(S @ gaussian.m + b, gaussian.m, atol=1e-12)
    np.testing.assert_allclose(S @ gaussian.C @ S.T + N @ N.T, gaussian.C, atol=1e-12)


def test_gibbs_reaches_the_gaussian_from_anywhere(gaussian: Any) -> None:
    mean, Σ = stationary(make_kernels(gaussian.ae, gaussian.sigma)["gibbs"], 1.0)
    np.testing.assert_allclose(mean, gaussian.m, atol=1e-10)
    np.testing.assert_allclose(Σ, gaussian.C, atol=1e-10)


def test_gibbs_keeps_a_sample_of_the_gaussian(gaussian: Any) -> None:
    rows, rng = 40_000, np.random.default_rng(0)
    x = gaussian.m + rng.standard_normal((rows, 4)) @ np.linalg.cholesky(gaussian.C).T
    kernel = make_kernels(gaussian.ae, gaussian.sigma)["gibbs"]
    noise = torch.from_numpy(rng.standard_normal((rows, kernel.noise)))
    after = step(kernel, torch.from_numpy(x), noise, 1.0) @ gaussian.Q
    np.testing.assert_allclose(np.cov(after.T).diagonal(), gaussian.c, rtol=5 * (2 / rows) ** 0.5)
    away = np.abs(after.mean(0) - gaussian.m @ gaussian.Q)
    assert (away < 5 * np.sqrt(gaussian.c / rows)).all()


class Optimal(AutoEncoder):
    """r(x) = m + C (C + σ²)⁻¹ (x - m) at every level σ that it is told."""

    def __init__(self, m: Matrix, C: Matrix) -> None:
        super().__init__(Architecture(len(m), (1,), "linear", conditioned=True))
        self.m, self.C = torch.from_numpy(m), torch.from_numpy(C)

    def linearise(self, x: Tensor, sigma: Tensor | None = None) -> Linearisation:
        assert sigma is not None
        S = self.C + sigma[:, :, None] ** 2 * torch.eye(len(self.m))  # (B, d, d)
        J = torch.linalg.inv(S) @ self.C

        def times(v: Tensor) -> Tensor:
            return torch.einsum("bij,b...j->b...i", J, v)

        return Linearisation(self.m + times(x - self.m), times, times)

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        return self.linearise(x, sigma).value


@pytest.mark.parametrize("halvings", [0, 1, 3])
def test_gibbs_over_smaller_levels_keeps_a_gaussian_exactly(gaussian: Any, halvings: int) -> None:
    """Up to the floor of its root."""
    ae = Optimal(gaussian.m, gaussian.C)
    kernel = make_kernels(ae, gaussian.sigma, "matrix", halvings=halvings)["gibbs"]
    S, N, b = affine(kernel, 1.0)
    np.testing.assert_allclose(S @ gaussian.m + b, gaussian.m, atol=1e-12)
    kept = S @ gaussian.C @ S.T + N @ N.T
    np.testing.assert_allclose(kept, gaussian.C, atol=5 * FLOOR * gaussian.sigma**2)


@pytest.mark.parametrize("s", [0.5, 1.0, 2**0.5])
def test_moment_settles_at_its_closed_form(gaussian: Any, s: float) -> None:
    mean, Σ = stationary(make_kernels(gaussian.ae, gaussian.sigma)["moment"], s)
    np.testing.assert_allclose(mean, gaussian.m, atol=1e-10)
    expected = gaussian.with_spectrum(s**2 * gaussian.c / (1 + gaussian.a))
    np.testing.assert_allclose(Σ, expected, atol=1e-10)


@pytest.mark.parametrize("s", [0.5, 2.0])
def test_input_settles_at_its_closed_form(gaussian: Any, s: float) -> None:
    mean, Σ = stationary(make_kernels(gaussian.ae, gaussian.sigma)["input"], s)
    np.testing.assert_allclose(mean, gaussian.m, atol=1e-10)
    expected = gaussian.with_spectrum(s**2 * gaussian.a**2 / (1 - gaussian.a**2))
    np.testing.assert_allclose(Σ, expected, atol=1e-10)


@pytest.mark.parametrize("s", [0.5, 2.0])
def test_hidden_settles_at_the_same_form_in_its_own_space(gaussian: Any, s: float) -> None:
    """W = diag(√a) Qᵀ, so that W Wᵀ = diag(a)."""
    mean, Σ = stationary(make_kernels(gaussian.ae, gaussian.sigma)["hidden"], s)
    with torch.no_grad():
        f_of_m = gaussian.ae.encode(torch.from_numpy(gaussian.m)[None])[0].numpy()
    np.testing.assert_allclose(mean, f_of_m, atol=1e-10)
    expected = np.diag(s**2 * gaussian.a**2 / (1 - gaussian.a**2))
    np.testing.assert_allclose(Σ, expected, atol=1e-10)


@pytest.mark.parametrize("η", [0.05, 0.2, 1.0])
def test_walkjump_settles_at_its_closed_form(gaussian: Any, η: float) -> None:
    mean, Σ = stationary(make_kernels(gaussian.ae, gaussian.sigma)["walkjump"], η)
    np.testing.assert_allclose(mean, gaussian.m, atol=1e-10)
    expected = 2 * η * gaussian.sigma**2 / (1 - (1 - η * (1 - gaussian.a)) ** 2)
    np.testing.assert_allclose(Σ, gaussian.with_spectrum(expected), atol=1e-10)


def test_walkjump_walks_on_the_smoothed_density_as_its_step_shrinks(gaussian: Any) -> None:
    """Langevin's own stationary covariance is C + σ² I."""
    _, Σ = stationary(make_kernels(gaussian.ae, gaussian.sigma)["walkjump"], 1e-6)
    np.testing.assert_allclose(Σ, gaussian.C + gaussian.sigma**2 * np.eye(4), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_the_emitted_mean_is_the_reconstruction_that_the_kernel_names(
    name: str, gaussian: Any
) -> None:
    ae, σ, s = gaussian.ae, gaussian.sigma, 0.7
    kernel, x = make_kernels(ae, σ)[name], torch.randn(5, 4)
    noise = torch.randn(5, kernel.noise)
    following, mean = kernel(x, noise, torch.full((5, 1), s))
    expected = {
        "hidden": lambda: ae.decode(following),
        "input": lambda: ae(x),
        "moment": lambda: ae(x),
        "gibbs": lambda: ae(following + s * σ / 2 * noise[:, -4:]),
        "walkjump": lambda: ae(following),
    }[name]()
    torch.testing.assert_close(mean, expected)


@pytest.mark.parametrize("shape", ARCHITECTURES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_the_same_interface(name: str, shape: str, make_ae: Maker) -> None:
    """Shapes, finite values, the same again, each row for itself, every normal used."""
    torch.manual_seed(0)
    kernel = make_kernels(make_ae(ARCHITECTURES[shape]), 0.4)[name]
    n, q = state_dims(kernel), kernel.noise
    state, noise, scale = torch.rand(7, n), torch.randn(7, q), torch.rand(7, 1) + 0.1
    following, mean = kernel(state, noise, scale)
    assert following.shape == (7, n) and mean.shape == (7, 4)
    assert torch.isfinite(following).all() and torch.isfinite(mean).all()
    assert kernel.space in ("input", "hidden")
    again, _ = kernel(state, noise, scale)
    assert torch.equal(following, again)
    alone, alone_mean = kernel(state[2:3], noise[2:3], scale[2:3])
    torch.testing.assert_close(alone, following[2:3])
    torch.testing.assert_close(alone_mean, mean[2:3])
    outcome = torch.cat([following, mean], 1)
    moved = [torch.cat(kernel(state, noise + torch.eye(q)[i], scale), 1) for i in range(q)]
    assert min((m - outcome).abs().max().item() for m in moved) > 1e-9
    with pytest.raises(RuntimeError):
        kernel(state, torch.randn(7, q + 1), scale)


@pytest.mark.parametrize("name", KERNELS)
def test_a_conditioned_model_gets_the_noise_level_of_the_kernel(name: str, make_ae: Maker) -> None:
    """Without noise a step is r at the level told: sσ for gibbs, σ for the others."""
    ae, σ, s = make_ae(ARCHITECTURES["conditioned"]), 0.4, 0.5
    kernel = make_kernels(ae, σ)[name]
    state = torch.randn(3, state_dims(kernel))
    level = torch.full((3, 1), s * σ if name == "gibbs" else σ)
    following, _ = kernel(state, torch.zeros(3, kernel.noise), torch.full((3, 1), s))
    if name == "hidden":
        expected = ae.encode(ae.decode(state, level), level)
    elif name == "walkjump":
        expected = state + s * (ae(state, level) - state)
    else:
        expected = ae(state, level)
    torch.testing.assert_close(following, expected)


def test_gibbs_uses_a_lower_noise_level_for_the_emitted_mean(make_ae: Maker) -> None:
    """Noise t/4 at level 5t/8, but never below the levels that the model was trained for."""
    ae, σ, s = make_ae(ARCHITECTURES["conditioned"]), 0.4, 0.5
    state, t = torch.randn(3, 4), 0.2
    for lowest, told in ((0.0, 0.125), (0.15, 0.15)):
        kernel = make_kernels(ae, σ, lowest=lowest)["gibbs"]
        noise = torch.randn(3, kernel.noise)
        following, mean = kernel(state, noise, torch.full((3, 1), s))
        expected = ae(following + t / 4 * noise[:, -4:], torch.full((3, 1), told))
        torch.testing.assert_close(mean, expected)


@pytest.mark.parametrize("name", ["moment", "gibbs"])
@pytest.mark.parametrize("root", ["exact", "polynomial", "jacobian"])
def test_the_noise_of_a_kernel_includes_that_of_its_root(
    name: str, root: str, make_ae: Maker
) -> None:
    ae = make_ae(ARCHITECTURES["tied"])
    kernel = make_kernels(ae, 0.4, root)[name]
    of_root = 6 if root == "exact" else 4
    assert kernel.noise == of_root + (8 if name == "gibbs" else 0)
