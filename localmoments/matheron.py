"""Draws given known columns where A is too large to build: from products A v alone.

Matheron's rule turns a draw x_s ~ N(r, P), P = t²A₊, into one given y = H X + √S η:

    X = x_s + P Hᵀ w,    (H P Hᵀ + S + τ²) w = y + √S η - H x_s

- x_s = r + t A₊^{1/2} ε by Lanczos: on the Krylov space of ε, with basis Q, A is a small matrix T,
  and A₊^{1/2} ε ≈ ‖ε‖ Q T₊^{1/2} e₁. The spectrum of A at an image decays fast, so a few products
  do.
- w by conjugate gradients, for a fixed number of rounds. A walker that meets a direction without
  curvature stops there.

A learnt A has eigenvalues down to about -0.07, and H A Hᵀ has a long tail of tiny ones in which r
is wrong by more than P says. The ridge τ = RIDGE·t lifts both: with less, the solution runs away
along that tail (docs/decisions/0013-conditional-sampling.md has figures). It enters the system but
not the draw, so draws are a little narrower than the conditional law.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.model import Arrays, Model
from localmoments.transition import Call

LANCZOS = 6  # products for a root
ROUNDS = 6  # of conjugate gradients
RIDGE = 0.3  # τ/t
CALLS = LANCZOS + ROUNDS
TINY = 1e-12

Products = Generator[Call, Arrays, tuple[Doubles, Doubles]]


@dataclass(frozen=True)
class Local:
    """r and A at a point, as products, and the level t of the local Gaussian N(r, t²A)."""

    model: Model
    x: Floats  # (W, d)
    sigma: float  # what a conditioned model is told
    t: float

    def times(self, v: Doubles) -> Products:
        """r (W, d) and A v; v (W, k, d)."""
        level = self.model.noise_level(len(self.x), self.sigma)
        out = yield Call("moments", {"x": self.x, "v": v.astype(np.float32), **level})
        return out["mean"].astype(np.float64), out["products"].astype(np.float64)


def draw_given(
    at: Local, mask: Doubles, y: Doubles, variance: Doubles, ε: Doubles, η: Doubles
) -> Generator[Call, Arrays, tuple[Doubles, Doubles]]:
    """A draw of X given the known columns, and its conditional mean; both (W, d).

    mask is 1 where a column is known and 0 elsewhere; y, variance, and the normals ε and η are
    (W, d) as well.
    """
    r, root = yield from _root(at, ε)
    drawn = r + at.t * root
    wanted = y + np.sqrt(variance) * η
    away = np.stack([mask * (wanted - drawn), mask * (y - r)], axis=1)  # (W, 2, d)
    ridge = variance / at.t**2 + RIDGE**2
    moved = yield from _solve(at, away, mask[:, None], ridge[:, None])
    return drawn + moved[:, 0], r + moved[:, 1]


def _root(at: Local, ε: Doubles) -> Products:
    """r and A₊^{1/2} ε; both (W, d)."""
    size = np.sqrt(_dot(ε, ε))  # (W, 1)
    Q, T = [ε / size], np.zeros((len(ε), LANCZOS, LANCZOS))
    for i in range(LANCZOS):
        r, product = yield from at.times(Q[i][:, None])
        u = product[:, 0]
        T[:, i, i] = _dot(u, Q[i])[:, 0]
        for _ in range(2):  # twice is enough to stay orthogonal to rounding
            for q in Q:
                u = u - _dot(u, q) * q
        β = np.sqrt(_dot(u, u))
        if i + 1 < LANCZOS:
            T[:, i, i + 1] = T[:, i + 1, i] = β[:, 0]
            Q.append(u / np.maximum(β, TINY))
    λ, U = np.linalg.eigh(T)
    c = ((U * np.sqrt(np.maximum(λ, 0.0))[:, None]) * U[:, :1]).sum(axis=2)  # (W, LANCZOS)
    return r, size * sum((c[:, i : i + 1] * q for i, q in enumerate(Q)), np.zeros_like(ε))


def _solve(
    at: Local, b: Doubles, mask: Doubles, ridge: Doubles
) -> Generator[Call, Arrays, Doubles]:
    """A Hᵀ w with (H A Hᵀ + ridge) w = b, for every right side; b (W, k, d).

    Columns may be known up to very different errors, so the system is scaled by its diagonal (the
    diagonal of A is at most about 1): a few rounds are enough only if its spectrum is narrow.
    """
    size = 1 / np.sqrt(1 + ridge)
    residual = direction = size * b
    moved = np.zeros_like(b)
    ρ = _dot(residual, residual)  # (W, k, 1)
    for _ in range(ROUNDS):
        _, product = yield from at.times(size * direction)
        image = mask * size * (product + ridge * size * direction)
        curvature = _dot(direction, image)
        goes_on = curvature > TINY * np.maximum(_dot(direction, direction), TINY)
        step = np.where(goes_on, ρ / np.where(goes_on, curvature, 1.0), 0.0)
        moved = moved + step * product
        residual = residual - step * image
        following = _dot(residual, residual)
        direction = residual + np.where(goes_on, following / np.maximum(ρ, TINY), 0.0) * direction
        direction = np.where(goes_on, direction, 0.0)
        ρ = following
    return moved


def _dot(a: Doubles, b: Doubles) -> Doubles:
    product: Doubles = (a * b).sum(axis=-1, keepdims=True)
    return product
