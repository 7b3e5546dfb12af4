"""What the paper claims, on laws where the truth is known: closed forms and grids, no training."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov

from localmoments.estimators import estimate_moments
from localmoments.spectrum import full_spectrum
from trainer.data.synthetic import GaussianMixture
from trainer.evaluate.grid import Grid, best_reconstruction, solve, total_variation

Array = NDArray[np.float64]

BUMPS = GaussianMixture(
    np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.array([[[0.16]], [[0.36]]])
)
AXIS = Grid((-5.0,), (5.0,), (400,))


def masses(law: GaussianMixture, grid: Grid) -> Array:
    x, total = grid.centres(), np.zeros(np.prod(grid.cells))
    for w, m, C in zip(law.weights, law.means, law.covariances, strict=True):
        power = np.einsum("ni,ij,nj->n", x - m, np.linalg.inv(C), x - m)
        total += w * np.exp(-power / 2) / np.sqrt(np.linalg.det(C))
    return np.asarray(total / total.sum())


def gaussian(m: Array, C: Array) -> GaussianMixture:
    return GaussianMixture(np.ones(1), m[None], C[None])


def chain(x: Array, sigma: float, step: float, ratio: float) -> tuple[Array, Array]:
    """μ = x + η (r - x) and Σ = ηcC, with the exact moments of the bumps."""
    r, C = BUMPS.posterior(x, np.array([sigma]))
    return x + step * (r - x), step * ratio * C


def test_the_inverted_moments_of_the_best_linear_auto_encoder_are_m_and_C() -> None:
    """Appendix: m = (I - J)⁻¹ (r - J x), C = α (I - J)⁻¹ J, at any point."""
    rng = np.random.default_rng(0)
    m, B = rng.standard_normal(4), rng.standard_normal((4, 4))
    C, α = B @ B.T, 0.36
    J = C @ np.linalg.inv(C + α * np.eye(4))
    x = rng.standard_normal(4)
    found = estimate_moments(x, m + J @ (x - m), full_spectrum(J), α, "inverted")
    np.testing.assert_allclose(found.mean, m, atol=1e-9)
    np.testing.assert_allclose(found.covariance(), C, atol=1e-9)


def test_the_best_rcae_of_a_gaussian_is_the_best_dae() -> None:
    """r = m + C (C + α)⁻¹ (x - m): here both criteria agree at every σ, not only at small ones."""
    law, α = gaussian(np.array([0.5]), np.array([[0.8]])), 0.5
    p = masses(law, AXIS)
    r = best_reconstruction(AXIS, p, α)
    best, _ = law.posterior(AXIS.centres(), np.array([α**0.5]))
    assert np.sqrt(p @ (r - best[:, 0]) ** 2) < 1e-3


def test_the_best_dae_and_rcae_of_a_mixture_differ_by_the_fourth_power_of_sigma() -> None:
    """Eq. 3. r - x is of order σ², so relative to it they differ by σ²."""
    grid = Grid((-6.0,), (6.0,), (8000,))
    x, p = grid.centres(), np.maximum(masses(BUMPS, grid), 1e-300)
    differences, steps = [], []
    for sigma in (0.05, 0.025):
        r, _ = BUMPS.posterior(x, np.array([sigma]))
        rcae = best_reconstruction(grid, p, sigma**2)
        differences.append(np.sqrt(p @ (rcae - r[:, 0]) ** 2))
        steps.append(np.sqrt(p @ (r - x)[:, 0] ** 2))
    assert 13 < differences[0] / differences[1] < 17
    assert differences[1] / steps[1] < 0.003


def test_the_moments_in_a_ball_are_r_and_J_for_one_radius_and_not_for_small_ones() -> None:
    """Eq. simple-rJ-solutions. The ball that is as wide as the noise has δ = σ√3 in one column;
    as δ → 0 the ball's mean tends to x and its covariance to 0, and r and αJ do not."""
    sigma = 0.2
    grid = Grid((-5.0,), (5.0,), (1600,))
    x, p = grid.centres()[:, 0], masses(BUMPS, grid)
    r, C = BUMPS.posterior(x[:, None], np.array([sigma]))
    inside = p > 1e-3 * p.max()

    def errors(delta: float) -> tuple[float, float]:
        w = (np.abs(x[:, None] - x) < delta) * p
        w = w / w.sum(1, keepdims=True)
        m = w @ x
        c = w @ x**2 - m**2
        step = np.sqrt(p @ (r[:, 0] - x) ** 2)
        mean = np.sqrt(p[inside] @ (m - r[:, 0])[inside] ** 2) / step
        return float(mean), float((p @ c) / (p @ C[:, 0, 0]))

    mean, ratio = errors(sigma * 3**0.5)
    assert mean < 0.1 and ratio == pytest.approx(1, abs=0.05)
    mean, ratio = errors(sigma / 4)
    assert mean > 0.9 and ratio < 0.05
    mean, ratio = errors(8 * sigma)
    assert mean > 3 and ratio > 5


@pytest.mark.parametrize("scale", [1.0, 2**0.5])
def test_the_operator_equation_of_gaussian_data_has_the_lyapunov_solution(scale: float) -> None:
    """X' = m + A (X - m) + s σ A^½ ε: π = N(m, V), V = A V Aᵀ + s²σ²A = s² C (I + A)⁻¹."""
    grid = Grid((-4.0, -4.5), (5.0, 3.5), (50, 50))
    m, C, α = np.array([0.4, -0.3]), np.array([[0.8, 0.4], [0.4, 0.6]]), 0.5
    A = C @ np.linalg.inv(C + α * np.eye(2))
    V = solve_discrete_lyapunov(A, scale**2 * α * A)
    np.testing.assert_allclose(V, scale**2 * C @ np.linalg.inv(np.eye(2) + A), atol=1e-9)
    x = grid.centres()
    π = solve(grid, m + (x - m) @ A.T, np.broadcast_to(scale**2 * α * A, (len(x), 2, 2)))
    assert total_variation(π, masses(gaussian(m, V), grid)) < 0.01
    mean = π @ x
    np.testing.assert_allclose(mean, m, atol=2e-3)
    np.testing.assert_allclose(np.einsum("n,ni,nj", π, x - mean, x - mean), V, atol=0.01)


def test_the_literal_chain_keeps_half_of_the_variance_along_the_manifold() -> None:
    """X' ~ N(r, αJ): V = C / (1 + a), so a direction with C ≫ α keeps C / 2."""
    C, α = 100.0, 0.01
    a = C / (C + α)
    variance = solve_discrete_lyapunov(np.array([[a]]), np.array([[α * a]]))[0, 0]
    assert variance == pytest.approx(C / 2, rel=1e-3)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_small_steps_keep_gaussian_data_only_where_the_noise_is_twice_the_drift(
    ratio: float,
) -> None:
    """μ - x = η (r - x), Σ = cηαJ: V → cC/2 as η → 0. The paper leaves c open."""
    C, α, η = 0.7, 0.3, 1e-5
    a = C / (C + α)
    variance = ratio * η * α * a / (1 - (1 - η * (1 - a)) ** 2)
    assert variance == pytest.approx(ratio / 2 * C, rel=1e-4)


def test_the_grid_has_the_law_of_a_long_chain() -> None:
    """Closed-form moments of two bumps, full steps with Σ = 2C."""
    rng, sigma = np.random.default_rng(0), 0.4
    x, kept = BUMPS.sample(8_000, rng), []
    for step in range(60):
        mu, Σ = chain(x, sigma, 1.0, 2.0)
        x = mu + np.sqrt(Σ[:, :, 0]) * rng.standard_normal(x.shape)
        if step >= 20:
            kept.append(x)
    π = solve(AXIS, *chain(AXIS.centres(), sigma, 1.0, 2.0))
    walked = AXIS.histogram(np.concatenate(kept))
    coarse = [law.reshape(-1, 8).sum(1) for law in (π, walked)]
    assert total_variation(*coarse) < 0.015


def test_the_chain_comes_nearer_to_the_data_as_sigma_falls() -> None:
    p, x = masses(BUMPS, AXIS), AXIS.centres()
    far = [total_variation(solve(AXIS, *chain(x, s, 1.0, 2.0)), p) for s in (0.8, 0.4, 0.2)]
    assert far[0] > 2 * far[1] > 4 * far[2]
    assert far[2] < 0.03


def test_local_means_are_consistent_in_proportion_to_the_step_whatever_the_law() -> None:
    """Section 3.3: m_π - E[μ | x₀] is of order η. It is no smaller for the chain whose law is near
    p (c = 2) than for the one whose law is not (c = 1): consistency does not single out p."""
    p, x, delta = masses(BUMPS, AXIS), AXIS.centres(), 0.5

    def error(step: float, ratio: float) -> tuple[float, float]:
        mu, Σ = chain(x, 0.4, step, ratio)
        π = solve(AXIS, mu, Σ)
        w = (np.abs(x - x[:, 0]) < delta) * π
        w = w / np.maximum(w.sum(1, keepdims=True), 1e-300)
        m = w @ x[:, 0]
        spread = np.sqrt(np.maximum(w @ x[:, 0] ** 2 - m**2, 1e-12))
        return float(π @ (np.abs(w @ mu[:, 0] - m) / spread)), total_variation(π, p)

    (large, _), (small, near), (other, far) = error(1.0, 2.0), error(0.1, 2.0), error(0.1, 1.0)
    assert large > 0.3 and 8 < large / small < 13
    assert other < small
    assert near < 0.06 and far > 0.14


def test_merged_cells_and_histograms_keep_all_mass() -> None:
    grid = Grid((0.0, 0.0), (1.0, 2.0), (4, 6))
    x = np.random.default_rng(0).uniform((0, 0), (1, 2), (1_000, 2))
    law = grid.histogram(x)
    assert law.sum() == pytest.approx(1) and grid.merge(law).shape == (6,)
    counts, *_ = np.histogram2d(x[:, 0], x[:, 1], (2, 3), ((0, 1), (0, 2)))
    np.testing.assert_allclose(grid.merge(law), counts.ravel() / 1_000)
    assert grid.volume == pytest.approx(2 / 24)
