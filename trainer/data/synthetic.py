"""Synthetic data, drawn from distributions that are known in closed form.

What a model has learned can be compared with the truth. For y = x + s ⊙ ε with x from
Σ_k w_k N(m_k, C_k), and with S_k = C_k + diag(s²), G_k = C_k S_k⁻¹:

    E[x | y, k] = m_k + G_k (y − m_k)        Cov[x | y, k] = C_k − G_k C_k
    ρ_k(y) ∝ w_k N(y; m_k, S_k)

The laws of total expectation and covariance combine the components.

The distributions are fixed. `data.seed` only chooses the draw, so two seeds give two samples of one
law.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

DEFAULT_ROWS = 20_000
DIMS = 8  # of the Gaussian and the mixture
_LAW_SEED = 1311  # of their rotations


class KnownLaw(Protocol):
    """A distribution that can be sampled."""

    def sample(self, n: int, rng: np.random.Generator) -> Float: ...  # (n, d)


@dataclass(frozen=True)
class GaussianMixture:
    """Σ_k w_k N(m_k, C_k); a Gaussian is the case K = 1."""

    weights: Float  # (K,)
    means: Float  # (K, d)
    covariances: Float  # (K, d, d)

    def sample(self, n: int, rng: np.random.Generator) -> Float:
        """Draw n points: (n, d)."""
        k = rng.choice(len(self.weights), n, p=self.weights)  # (n,)
        eps = rng.standard_normal((n, self.means.shape[1]))  # (n, d)
        L = np.linalg.cholesky(self.covariances)  # (K, d, d)
        out = np.empty_like(eps)
        for j in range(len(self.weights)):
            out[k == j] = self.means[j] + eps[k == j] @ L[j].T
        return out

    def posterior(self, x: Float, noise_std: Float) -> tuple[Float, Float]:
        """Return mean (n, d) and covariance (n, d, d) of X given X + noise_std ⊙ ε = x.

        x: (n, d); noise_std: (d,) or a number.
        """
        rho = self._responsibilities(x, noise_std)  # (n, K)
        G = self._gains(noise_std)  # (K, d, d)
        away = x[:, None] - self.means  # (n, K, d)
        m = self.means + np.einsum("kij,nkj->nki", G, away)  # (n, K, d)
        C = self.covariances - G @ self.covariances  # (K, d, d)
        mean: Float = np.einsum("nk,nki->ni", rho, m)
        spread = m - mean[:, None]  # (n, K, d)
        within = np.einsum("nk,kij->nij", rho, C)
        between = np.einsum("nk,nki,nkj->nij", rho, spread, spread)
        return mean, within + between

    def _gains(self, noise_std: Float) -> Float:
        """Return G_k = C_k S_k⁻¹ = (S_k⁻¹ C_k)ᵀ, since both are symmetric: (K, d, d)."""
        S = self._smoothed_covariances(noise_std)
        return np.swapaxes(np.linalg.solve(S, self.covariances), 1, 2)

    def _smoothed_covariances(self, noise_std: Float) -> Float:
        """Return S_k = C_k + diag(s²): (K, d, d)."""
        d = self.means.shape[1]
        s = np.broadcast_to(np.asarray(noise_std, np.float64), (d,))
        S: Float = self.covariances + np.diag(s**2)
        return S

    def _responsibilities(self, x: Float, noise_std: Float) -> Float:
        """Return ρ_k(x): (n, K). Computed from logarithms, because all densities underflow far
        from every component."""
        S = self._smoothed_covariances(noise_std)
        away = x[:, None] - self.means  # (n, K, d)
        solved = np.einsum("kij,nkj->nki", np.linalg.inv(S), away)
        log = -0.5 * (away * solved).sum(2) - 0.5 * np.linalg.slogdet(S)[1]  # (n, K)
        log = log + np.log(self.weights)
        rho = np.exp(log - log.max(1, keepdims=True))
        normalised: Float = rho / rho.sum(1, keepdims=True)
        return normalised


@dataclass(frozen=True)
class Spiral:
    """The curve c(t) = p t (cos t, sin t) for t in [first, last], plus isotropic noise."""

    pitch: float = 0.1
    first: float = 1.5 * np.pi
    last: float = 4.5 * np.pi
    noise: float = 0.02

    def sample(self, n: int, rng: np.random.Generator) -> Float:
        """Draw n points, evenly along the curve: (n, 2)."""
        t = np.sqrt(rng.uniform(self.first**2, self.last**2, n))  # arc length grows like t²
        on_curve, _, _ = self._curve(t)
        return on_curve + self.noise * rng.standard_normal((n, 2))

    def tangent(self, x: Float) -> Float:
        """Return the unit tangent of the curve at its point nearest to each x: (n, 2)."""
        _, velocity, _ = self._curve(self.nearest(x))
        unit: Float = velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
        return unit

    def nearest(self, x: Float) -> Float:
        """Return the parameter t of the curve point nearest to each x (n, 2): (n,)."""
        grid = np.linspace(self.first, self.last, 1000)
        points, _, _ = self._curve(grid)
        t = np.concatenate([_find_closest(grid, points, part) for part in _split_rows(x)])
        for _ in range(4):  # Newton's method on ½ |c(t) − x|², from the best point of the grid
            c, v, a = self._curve(t)
            slope = ((c - x) * v).sum(1)
            curvature = (v * v).sum(1) + ((c - x) * a).sum(1)
            is_convex = curvature > 0
            step = np.where(is_convex, slope / np.where(is_convex, curvature, 1.0), 0.0)
            t = np.clip(t - np.clip(step, -0.02, 0.02), self.first, self.last)
        return t

    def _curve(self, t: Float) -> tuple[Float, Float, Float]:
        """Return point, velocity and acceleration at t (n,), each (n, 2)."""
        radial = np.stack([np.cos(t), np.sin(t)], 1)
        angular = np.stack([-np.sin(t), np.cos(t)], 1)  # the derivative of `radial`
        t = t[:, None]
        point = self.pitch * t * radial
        velocity = self.pitch * (radial + t * angular)
        return point, velocity, self.pitch * (2 * angular - t * radial)


def _split_rows(x: Float, size: int = 1000) -> list[Float]:
    """Split x so that the distances to all grid points need only a few MB."""
    return [x[i : i + size] for i in range(0, max(1, len(x)), size)]


def _find_closest(grid: Float, points: Float, x: Float) -> Float:
    distance = ((x[:, None] - points) ** 2).sum(2)  # (n, grid)
    closest: Float = grid[distance.argmin(1)]
    return closest


def make_gaussian() -> GaussianMixture:
    """Make a Gaussian in 8 dimensions, not centred, with standard deviations from 2 to 0.25 along
    rotated axes."""
    rng = np.random.default_rng(_LAW_SEED)
    C = _make_covariance(np.geomspace(2.0, 0.25, DIMS), rng)
    return GaussianMixture(np.ones(1), rng.normal(size=(1, DIMS)), C[None])


def make_mixture() -> GaussianMixture:
    """Make a mixture of three Gaussians in 8 dimensions. Each has one long axis of its own, so the
    tangents are well defined."""
    rng = np.random.default_rng(_LAW_SEED + 1)
    std = np.array([1.5, 0.6, 0.4, 0.3, 0.3, 0.2, 0.2, 0.2])
    C = np.stack([_make_covariance(std, rng) for _ in range(3)])
    means = 2.0 * _draw_rotation(rng)[:3]  # 2.8 apart
    return GaussianMixture(np.array([0.5, 0.3, 0.2]), means, C)


def _make_covariance(std: Float, rng: np.random.Generator) -> Float:
    """Return Q diag(std²) Qᵀ with a random rotation Q."""
    Q = _draw_rotation(rng)
    C: Float = (Q * std**2) @ Q.T
    return C


def _draw_rotation(rng: np.random.Generator) -> Float:
    Q, _ = np.linalg.qr(rng.standard_normal((DIMS, DIMS)))
    return np.asarray(Q, np.float64)


SYNTHETIC: dict[str, Callable[[], GaussianMixture | Spiral]] = {
    "gaussian": make_gaussian,
    "mixture": make_mixture,
    "spiral": Spiral,
}


def draw_rows(name: str, rows: int | None, seed: int) -> tuple[KnownLaw, NDArray[np.float32]]:
    """Draw rows (n, d) of the law `name`, one of SYNTHETIC; 20,000 if `rows` is None."""
    law = SYNTHETIC[name]()
    x = law.sample(rows or DEFAULT_ROWS, np.random.default_rng(seed))
    return law, x.astype(np.float32)
