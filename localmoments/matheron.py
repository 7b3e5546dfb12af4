"""Draws given known columns if A is too large to build: from products A v alone.

Matheron's rule turns a draw x_s ~ N(r, P), P = t²A₊, into a draw given y = H X + √S η:

    X = x_s + P Hᵀ w,    (H P Hᵀ + S + τ²) w = y + √S η - H x_s

- x_s = r + t A₊^{1/2} ε by Lanczos: on the Krylov space of ε, with basis Q, A is a small matrix T,
  and A₊^{1/2} ε ≈ ‖ε‖ Q T₊^{1/2} e₁. The spectrum of A at an image decays fast, so a few products
  are enough.
- w by conjugate gradients, for a fixed number of rounds. A walker that meets a direction without
  curvature stops there.

A learnt A has eigenvalues down to about -0.07, and H A Hᵀ has a long tail of tiny ones in which r
is wrong by more than P says. The ridge τ = RIDGE·t lifts both. With a smaller ridge, the solution
runs away along that tail (docs/decisions/0013-conditional-sampling.md has figures). The ridge
enters the system but not the draw, so draws are a little narrower than the conditional law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.graph_calls import Call, Calls

if TYPE_CHECKING:
    from localmoments.model import Model

LANCZOS = 6  # products for a root
ROUNDS = 6  # of conjugate gradients
RIDGE = 0.3  # τ/t
CALLS = LANCZOS + ROUNDS
TINY = 1e-12


@dataclass(frozen=True)
class LocalProducts:
    """r and A at a point, as products, and the level t of the local Gaussian N(r, t²A)."""

    model: Model
    x: Floats  # (W, d)
    sigma: float  # the noise level that a conditioned model receives
    t: float

    def multiply(self, v: Doubles) -> Calls[tuple[Doubles, Doubles]]:
        """Return r (W, d) and A v; v is (W, k, d)."""
        level = self.model.noise_level(len(self.x), self.sigma)
        out = yield Call("moments", {"x": self.x, "v": v.astype(np.float32), **level})
        return out["mean"].astype(np.float64), out["products"].astype(np.float64)


def draw_given(
    at: LocalProducts, mask: Doubles, y: Doubles, variance: Doubles, ε: Doubles, η: Doubles
) -> Calls[tuple[Doubles, Doubles]]:
    """Return a draw of X given the known columns, and its conditional mean; both (W, d).

    Args:
        mask: 1 where a column is known and 0 elsewhere; (W, d).
        y: the known values; (W, d).
        variance: of their errors; (W, d).
        ε, η: standard normals; (W, d).
    """
    r, root = yield from _multiply_root(at, ε)
    x = r + at.t * root
    target = y + np.sqrt(variance) * η
    # Two right-hand sides share the products: the draw's and, without noise, the mean's.
    residuals = np.stack([mask * (target - x), mask * (y - r)], axis=1)  # (W, 2, d)
    ridge = variance / at.t**2 + RIDGE**2  # in units of t², as P = t²A
    shift = yield from _solve(at, residuals, mask[:, None], ridge[:, None])
    return x + shift[:, 0], r + shift[:, 1]


def _multiply_root(at: LocalProducts, ε: Doubles) -> Calls[tuple[Doubles, Doubles]]:
    """Return r and A₊^{1/2} ε; both (W, d)."""
    size = np.sqrt(_dot(ε, ε))  # (W, 1)
    Q, T = [ε / size], np.zeros((len(ε), LANCZOS, LANCZOS))
    for i in range(LANCZOS):
        r, product = yield from at.multiply(Q[i][:, None])
        u = product[:, 0]
        T[:, i, i] = _dot(u, Q[i])[:, 0]
        # Lanczos vectors lose orthogonality as soon as an eigenvalue converges, so u is made
        # orthogonal to all of them, twice, which is enough to stay so to rounding.
        for _ in range(2):
            for q in Q:
                u = u - _dot(u, q) * q
        β = np.sqrt(_dot(u, u))
        if i + 1 < LANCZOS:
            T[:, i, i + 1] = T[:, i + 1, i] = β[:, 0]
            Q.append(u / np.maximum(β, TINY))  # 0 once the space is exhausted, which is harmless
    λ, U = np.linalg.eigh(T)
    # c = T₊^{1/2} e₁; e₁ are the coordinates of ε / ‖ε‖, the first basis vector.
    c = ((U * np.sqrt(np.maximum(λ, 0.0))[:, None]) * U[:, :1]).sum(axis=2)  # (W, LANCZOS)
    return r, size * sum((c[:, i : i + 1] * q for i, q in enumerate(Q)), np.zeros_like(ε))


def _solve(at: LocalProducts, b: Doubles, mask: Doubles, ridge: Doubles) -> Calls[Doubles]:
    """Return A Hᵀ w with (H A Hᵀ + ridge) w = b, for every right-hand side; b is (W, k, d).

    Columns may be known up to very different errors, so the system is scaled by its diagonal (that
    of A is at most about 1). A few rounds are enough only if the spectrum is narrow.
    """
    size = 1 / np.sqrt(1 + ridge)
    residual = direction = size * b
    shift = np.zeros_like(b)
    ρ = _dot(residual, residual)  # (W, k, 1)
    for _ in range(ROUNDS):
        _, product = yield from at.multiply(size * direction)
        image = mask * size * (product + ridge * size * direction)
        curvature = _dot(direction, image)
        # A learnt A can have negative curvature. Stop that walker instead of dividing by it.
        goes_on = curvature > TINY * np.maximum(_dot(direction, direction), TINY)
        step = np.where(goes_on, ρ / np.where(goes_on, curvature, 1.0), 0.0)
        shift = shift + step * product  # A Hᵀ w itself, so w is never formed
        residual = residual - step * image
        following = _dot(residual, residual)
        direction = residual + np.where(goes_on, following / np.maximum(ρ, TINY), 0.0) * direction
        direction = np.where(goes_on, direction, 0.0)
        ρ = following
    return shift


def _dot(a: Doubles, b: Doubles) -> Doubles:
    product: Doubles = (a * b).sum(axis=-1, keepdims=True)
    return product
