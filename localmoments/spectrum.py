"""Leading eigenpairs of A = (J + Jᵀ)/2, or of D A D: from the whole matrix, or from products A v.

D = diag(scale) turns the model's units into the data's. The leading pairs of D A D are not the
leading pairs of A, rescaled: a direction that hardly varies in the model's units may vary most in
the data's. So the method runs on the operator whose pairs are asked for, v -> D A D v.

The few products are those of a block Krylov space Q = span[V, AV, A²V, ...] with

    A Q = Q T + P L,    T = Qᵀ A Q,    P the next block, orthonormal to Q,

and the pairs are those of A on [Q, P], where the one part that is not known yet, C = Pᵀ A P, is
taken for c I, with the mean c of what A was on the last block. What is left of A outside of Q is
nearly that long before Q holds the wanted vectors to many digits, so this is worth a block of
products and costs none. What C may be beside c I says how far the wanted vectors may be off, and
the space grows until that is little (docs/decisions/0008-tangents.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles

Products = Callable[[Doubles], Doubles]  # (k, d) rows v -> rows A v

WIDTH = 8  # least vectors in a block: one alone costs hardly less, since all weights are read
FEWEST, MOST = 4, 32  # blocks: what the inverted mean needs; what an A without decay may take
ANGLE = 5e-4  # sine of the largest angle between the wanted space and the one found, estimated
APART = 1e-3  # of an eigenvalue: closer ones are not told apart
NOTHING = 3e-7  # of the largest: what A adds below it is rounding


@dataclass(frozen=True)
class Spectrum:
    """Eigenpairs, largest first. A trained J is not a covariance: some may be negative."""

    eigenvalues: Doubles  # (k,)
    vectors: Doubles  # (k, d), orthonormal rows

    def leading(self, rank: int) -> "Spectrum":
        return Spectrum(self.eigenvalues[:rank], self.vectors[:rank])


def full_spectrum(J: NDArray[np.floating], scale: Doubles | None = None) -> Spectrum:
    """Every eigenpair of A = (J + Jᵀ)/2, or with `scale` (d,) of D A D; J (d, d)."""
    A = (np.asarray(J, np.float64) + np.asarray(J, np.float64).T) / 2
    if scale is not None:
        A = A * scale * scale[:, None]
    values, vectors = np.linalg.eigh(A)  # ascending
    return Spectrum(values[::-1].copy(), vectors[:, ::-1].T.copy())


def leading_spectrum(
    products: Products,
    dims: int,
    rank: int,
    toward: Doubles | None = None,
    scale: Doubles | None = None,
) -> Spectrum:
    """At least the `rank` largest eigenpairs of A, or with `scale` (d,) of D A D.

    The space holds `toward` (d,), which is in the coordinates of the eigenvectors.
    """
    space = Krylov.begin(dims, rank, toward)
    while not space.settled:
        space = space.grown(scaled_products(products, space.block, scale))
    return space.spectrum()


def scaled_products(products: Products, v: Doubles, scale: Doubles | None) -> Doubles:
    """Rows D A D v; A v where there is no scale. v (k, d)."""
    return products(v) if scale is None else scale * products(scale * v)


def block_width(dims: int, rank: int) -> int:
    """Vectors in a block. Of the same number of products, many thin blocks find more than few
    thick ones, but a space of blocks thinner than an eigenvalue's multiplicity may miss some."""
    return min(dims, max(WIDTH, (rank + 1) // 2))


@lru_cache(maxsize=16)
def start_vectors(dims: int) -> Doubles:
    """Random vectors, N(0, I), that every space holds, whatever its rank; (WIDTH - 1, d)."""
    return _random(dims, WIDTH, seed=0)[1:]


@dataclass(frozen=True)
class Krylov:
    """The space so far, and the block whose products it wants next.

    It is told them by its owner, who may have many points and ask for the products of all of them
    at once. Each block is orthogonalised twice, so the basis stays orthonormal to rounding.
    """

    rank: int
    basis: Doubles  # (m, d), orthonormal rows: Qᵀ
    T: Doubles  # (m, m)
    block: Doubles  # (w, d), orthonormal rows: Pᵀ
    L: Doubles  # (w, m)
    blocks: int = 0
    fresh: bool = True  # the block is random, and not what A made of the last one

    @classmethod
    def begin(cls, dims: int, rank: int, toward: Doubles | None = None) -> "Krylov":
        start = _random(dims, block_width(dims, rank), seed=0)  # rows 1 on: start_vectors
        if toward is not None:
            start[0] = toward / max(float(np.linalg.norm(toward)), 1e-300)
        block = _orthonormal(start, np.zeros((0, dims)), least=1e-9)
        return cls(rank, np.zeros((0, dims)), np.zeros((0, 0)), block, np.zeros((len(block), 0)))

    def grown(self, products: Doubles) -> "Krylov":
        """With the block, whose products these are; (w, d)."""
        m = len(self.basis)
        basis = np.vstack([self.basis, self.block])
        new = products @ basis.T  # (w, m + w)
        corner = (new[:, m:] + new[:, m:].T) / 2
        T = np.block([[self.T, new[:, :m].T], [new[:, :m], corner]])
        return self._next(basis, T, products - new @ basis)

    def _next(self, basis: Doubles, T: Doubles, outside: Doubles) -> "Krylov":
        """Where A adds nothing, a random block shows whether anything was missed, once."""
        m, d = basis.shape
        block = _orthonormal(outside, basis, NOTHING * float(np.abs(T).max()))[: d - m]
        L = np.zeros((len(block), m))
        L[:, m - len(outside) :] = block @ outside.T
        fresh = not len(block) and (not self.fresh or m < self.rank)
        if fresh:
            random = _random(d, len(outside), seed=m)
            block = _orthonormal(random - (random @ basis.T) @ basis, basis, 1e-9)[: d - m]
            L = np.zeros((len(block), m))
        return Krylov(self.rank, basis, T, block, L, self.blocks + 1, fresh)

    @property
    def settled(self) -> bool:
        """The wanted pairs are found, or no more can be."""
        if not len(self.block) or self.blocks == MOST:
            return True
        early = self.fresh or self.blocks < FEWEST or len(self.basis) < 3 * self.rank
        return not early and self.angle <= ANGLE

    @property
    def angle(self) -> float:
        """How far the wanted vectors may be off, because E = C - c I is not zero.

        By perturbation theory the part of pair j in pair i is pⱼᵀ E pᵢ / (λᵢ - λⱼ), p being a
        vector's part in P. For E stands what it was on the last block, or L where that is larger.
        """
        k, w = self.rank, len(self.block)
        λ, U = self._pairs  # (m + w,), (m + w, m + w)
        p = U[-w:]
        gaps = np.maximum(λ[:k, None] - λ[k:], APART * np.abs(λ[:k, None]))
        last = self.T[-w:, -w:] - self._rest * np.eye(w)
        E = max(np.linalg.norm(last, 2), np.linalg.norm(self.L, 2))
        return float(E * np.linalg.norm(p[:, :k].T @ p[:, k:] / np.maximum(gaps, 1e-300)))

    @cached_property
    def _pairs(self) -> tuple[Doubles, Doubles]:
        """Of [[T, Lᵀ], [L, c I]], the largest first; vectors are columns."""
        C = self._rest * np.eye(len(self.block))
        values, vectors = np.linalg.eigh(np.block([[self.T, self.L.T], [self.L, C]]))
        return values[::-1], vectors[:, ::-1]

    @property
    def _rest(self) -> float:
        """c; of a random block nothing is known."""
        w = len(self.block)
        return 0.0 if self.fresh else float(np.trace(self.T[-w:, -w:])) / max(w, 1)

    def spectrum(self) -> Spectrum:
        λ, U = self._pairs
        return Spectrum(λ.copy(), U.T @ np.vstack([self.basis, self.block]))


def _random(dims: int, rows: int, seed: int) -> Doubles:
    return np.random.default_rng(seed).standard_normal((min(dims, rows), dims))


def _orthonormal(rows: Doubles, basis: Doubles, least: float) -> Doubles:
    """Orthonormal rows that span these, which are orthogonal to the basis but for rounding."""
    rows = _scaled(rows, least)
    return _scaled(rows - (rows @ basis.T) @ basis, 0.5)


def _scaled(rows: Doubles, least: float) -> Doubles:
    """Rows of length 1, orthogonal to each other; without directions shorter than `least`."""
    s, U = np.linalg.eigh(rows @ rows.T)  # squares of the singular values
    kept = s > max(least, 1e-300) ** 2
    scaled: Doubles = (U[:, kept] / np.sqrt(s[kept])).T @ rows
    return scaled
