"""Distributions that are known in closed form, so that what was learnt can be checked.

For y = x + s ⊙ ε with x from Σ_k w_k N(m_k, C_k), S_k = C_k + diag(s²), G_k = C_k S_k⁻¹:

    E[x | y, k] = m_k + G_k (y − m_k)        Cov[x | y, k] = C_k − G_k C_k
    ρ_k(y) ∝ w_k N(y; m_k, S_k)

and the laws of total expectation and covariance put the components together.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


class Truth(Protocol):
    def sample(self, n: int, rng: np.random.Generator) -> Float: ...  # (n, d)


@dataclass(frozen=True)
class GaussianMixture:
    """Σ_k w_k N(m_k, C_k); a Gaussian is the case K = 1."""

    weights: Float  # (K,)
    means: Float  # (K, d)
    covariances: Float  # (K, d, d)

    def sample(self, n: int, rng: np.random.Generator) -> Float:
        k = rng.choice(len(self.weights), n, p=self.weights)  # (n,)
        eps = rng.standard_normal((n, self.means.shape[1]))  # (n, d)
        L = np.linalg.cholesky(self.covariances)  # (K, d, d)
        out = np.empty_like(eps)
        for j in range(len(self.weights)):
            out[k == j] = self.means[j] + eps[k == j] @ L[j].T
        return out

    def posterior(self, x: Float, noise_std: Float) -> tuple[Float, Float]:
        """E and Cov of X given X + noise_std ⊙ ε = x: (n, d) and (n, d, d)."""
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
        """C S⁻¹ = (S⁻¹ C)ᵀ, as both are symmetric."""
        S = self._smoothed(noise_std)
        return np.swapaxes(np.linalg.solve(S, self.covariances), 1, 2)  # (K, d, d)

    def _smoothed(self, noise_std: Float) -> Float:
        d = self.means.shape[1]
        s = np.broadcast_to(np.asarray(noise_std, np.float64), (d,))
        smoothed: Float = self.covariances + np.diag(s**2)  # (K, d, d)
        return smoothed

    def _responsibilities(self, x: Float, noise_std: Float) -> Float:
        """In log space: far from every component all densities underflow."""
        S = self._smoothed(noise_std)
        away = x[:, None] - self.means  # (n, K, d)
        solved = np.einsum("kij,nkj->nki", np.linalg.inv(S), away)
        log = -0.5 * (away * solved).sum(2) - 0.5 * np.linalg.slogdet(S)[1]  # (n, K)
        log = log + np.log(self.weights)
        rho = np.exp(log - log.max(1, keepdims=True))
        normed: Float = rho / rho.sum(1, keepdims=True)
        return normed


@dataclass(frozen=True)
class Spiral:
    """c(t) = p t (cos t, sin t) for t in [first, last], with isotropic noise around it."""

    pitch: float = 0.1
    first: float = 1.5 * np.pi
    last: float = 4.5 * np.pi
    noise: float = 0.02

    def sample(self, n: int, rng: np.random.Generator) -> Float:
        """t is drawn by t² because arc length grows like t²: even along the curve."""
        t = np.sqrt(rng.uniform(self.first**2, self.last**2, n))
        on_curve, _, _ = self._curve(t)
        return on_curve + self.noise * rng.standard_normal((n, 2))

    def tangent(self, x: Float) -> Float:
        """Unit tangent of the curve at its point nearest to each x: (n, 2)."""
        _, velocity, _ = self._curve(self.nearest(x))
        unit: Float = velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
        return unit

    def nearest(self, x: Float) -> Float:
        """The parameter t of the nearest curve point (n,): a grid, then Newton steps."""
        grid = np.linspace(self.first, self.last, 1000)
        points, _, _ = self._curve(grid)
        t = np.concatenate([_closest(grid, points, part) for part in _parts(x)])
        for _ in range(4):
            c, v, a = self._curve(t)
            slope = ((c - x) * v).sum(1)
            bend = (v * v).sum(1) + ((c - x) * a).sum(1)
            step = np.where(bend > 0, slope / np.where(bend > 0, bend, 1.0), 0.0)
            t = np.clip(t - np.clip(step, -0.02, 0.02), self.first, self.last)
        return t

    def _curve(self, t: Float) -> tuple[Float, Float, Float]:
        """Point, velocity and acceleration at t, each (n, 2)."""
        out = np.stack([np.cos(t), np.sin(t)], 1)  # radial unit vector
        turn = np.stack([-np.sin(t), np.cos(t)], 1)  # its derivative
        t = t[:, None]
        point = self.pitch * t * out
        velocity = self.pitch * (out + t * turn)
        return point, velocity, self.pitch * (2 * turn - t * out)


def _parts(x: Float, size: int = 1000) -> list[Float]:
    """Pieces small enough that a distance to every grid point fits in a few MB."""
    return [x[i : i + size] for i in range(0, max(1, len(x)), size)]


def _closest(grid: Float, points: Float, x: Float) -> Float:
    distance = ((x[:, None] - points) ** 2).sum(2)  # (n, grid)
    nearest: Float = grid[distance.argmin(1)]
    return nearest
