"""Leading eigenpairs of A = (J + Jᵀ)/2, or of D A D: from the whole matrix, or from products A v.

D = diag(scale) converts model units to the units of the data. The leading pairs of D A D are not
those of A, rescaled: a direction that hardly varies in model units may vary most in the data's. So
the method runs on the operator v -> D A D v itself.

The products are those of a block Krylov space Q = span[V, AV, A²V, ...] with

    A Q = Q T + P L,    T = Qᵀ A Q,    P the next block, orthonormal to Q.

The pairs are those of A on [Q, P]. There only C = Pᵀ A P is unknown. It is replaced by c I, where c
is the mean of A on the last block. Outside Q, A is close to c I well before the leading vectors
converge. This gains as much accuracy as one more block and costs no products.
The possible deviation of C from c I bounds the error of the leading vectors, and the space grows
until that error is small (docs/decisions/0008-tangents.md).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Arrays, Doubles, Floats
from localmoments.graph_calls import Call, Calls

WIDTH = 8  # fewest vectors in a block: one costs hardly less than 8, since all weights are read
FEWEST, MOST = 4, 32  # blocks: what the inverted mean needs; what an A without decay may take
ANGLE = 5e-4  # stop when the estimated sine of the largest angle to the true space is below this
SMALLEST_GAP = 1e-3  # relative gap below which eigenvalues count as equal
CALL_VECTORS = 32  # vectors in one call of `find_matrices`, which bounds the memory of a call
ROUNDING = 3e-7  # relative to the largest eigenvalue: what A adds below this is rounding


@dataclass(frozen=True)
class Spectrum:
    """Eigenpairs, largest first. A trained J is not a covariance, so some may be negative."""

    eigenvalues: Doubles  # (k,)
    vectors: Doubles  # (k, d), orthonormal rows

    def truncate(self, rank: int) -> "Spectrum":
        """Keep the `rank` largest pairs."""
        return Spectrum(self.eigenvalues[:rank], self.vectors[:rank])


def full_spectrum(J: NDArray[np.floating], scale: Doubles | None = None) -> Spectrum:
    """Return every eigenpair of A = (J + Jᵀ)/2, or with `scale` (d,) of D A D; J is (d, d)."""
    A = (np.asarray(J, np.float64) + np.asarray(J, np.float64).T) / 2
    if scale is not None:
        A = A * scale * scale[:, None]
    values, vectors = np.linalg.eigh(A)  # ascending
    return Spectrum(values[::-1].copy(), vectors[:, ::-1].T.copy())


def count_matrix_calls(dims: int) -> int:
    """Return the number of graph calls of `find_matrices`."""
    return -(-dims // CALL_VECTORS)


def find_matrices(x: Floats, level: Arrays) -> Calls[tuple[Doubles, Doubles]]:
    """Return r (n, d) and A (n, d, d) at every row, for few columns.

    Args:
        x: (n, d), in model units.
        level: `model.noise_level(n, sigma)`.
    """
    n, d = x.shape
    products = []
    for first in range(0, d, CALL_VECTORS):
        units = np.eye(d, dtype=np.float32)[first : first + CALL_VECTORS]
        v = np.ascontiguousarray(np.broadcast_to(units, (n, *units.shape)))
        out = yield Call("moments", {"x": x, "v": v, **level})
        products.append(out["products"].astype(np.float64))
    return out["mean"].astype(np.float64), np.concatenate(products, axis=1)


def whole_spectra(
    x: Floats, level: Arrays, scale: Doubles | None = None
) -> Calls[tuple[Floats, list[Spectrum]]]:
    """Return r(x) (n, d) and every eigenpair at each row, from one graph call.

    Args:
        x: (n, d), in model units.
        level: `model.noise_level(n, sigma)`.
        scale: (d,); the pairs are those of D A D.
    """
    n, d = x.shape
    v = np.ascontiguousarray(np.broadcast_to(np.eye(d, dtype=np.float32), (n, d, d)))
    out = yield Call("moments", {"x": x, "v": v, **level})
    return out["mean"], [full_spectrum(A, scale) for A in out["products"]]


def leading_spectra(
    x: Floats,
    level: Arrays,
    rank: int,
    toward: Doubles | None = None,
    scale: Doubles | None = None,
) -> Calls[list[Spectrum]]:
    """Return at least the `rank` leading eigenpairs at each row; one graph call serves all rows.

    Args:
        x: (n, d), in model units.
        level: `model.noise_level(n, sigma)`.
        toward: (n, d), a vector that each space contains, in the coordinates of the eigenvectors.
        scale: (d,); the pairs are those of D A D.
    """
    n, d = x.shape
    search = search_spectra(n, d, rank, toward, scale)
    request = next(search)
    while True:
        rows = request.rows
        inputs = {"x": x[rows], "v": request.v.astype(np.float32)}
        out = yield Call("moments", inputs | {name: array[rows] for name, array in level.items()})
        try:
            request = search.send(out["products"])
        except StopIteration as end:
            spectra: list[Spectrum] = end.value
            return spectra


def leading_spectrum(
    products: Callable[[Doubles], Doubles],
    dims: int,
    rank: int,
    toward: Doubles | None = None,
    scale: Doubles | None = None,
) -> Spectrum:
    """Return at least the `rank` leading eigenpairs of one operator.

    Args:
        products: maps rows v (k, d) to rows A v.
        toward: (d,), a vector that the space contains.
        scale: (d,); the pairs are those of D A D.
    """
    search = search_spectra(1, dims, rank, None if toward is None else toward[None], scale)
    request = next(search)
    while True:
        try:
            request = search.send(products(request.v[0])[None])
        except StopIteration as end:
            spectrum: Spectrum = end.value[0]
            return spectrum


@dataclass(frozen=True)
class ProductRequest:
    """The products A v that a search needs next."""

    rows: list[int]  # the points that still grow
    v: Doubles  # (len(rows), w, d)


def search_spectra(
    n: int, dims: int, rank: int, toward: Doubles | None = None, scale: Doubles | None = None
) -> Generator[ProductRequest, NDArray[np.floating], list[Spectrum]]:
    """Grow a Krylov space at each of n points: yield vectors v, receive the products A v.

    A point leaves when its space is settled. Its result does not depend on the other points.
    """
    D = np.ones(1)
    size = 1.0
    if scale is not None:
        size = float(scale.max())  # so that float32 holds D v whatever the units
        D = scale / size
    starts = [None] * n if toward is None else list(toward * D)
    spaces = [Krylov.start(dims, rank, start) for start in starts]
    rows = list(range(n))
    while rows:
        products = yield ProductRequest(rows, _pad([spaces[i].block * D for i in rows]))
        for i, images in zip(rows, products, strict=True):
            w = len(spaces[i].block)
            spaces[i] = spaces[i].extend(images[:w].astype(np.float64) * D)
        rows = [i for i in rows if not spaces[i].is_settled]
    spectra = [space.spectrum() for space in spaces]
    return [replace(s, eigenvalues=s.eigenvalues * size**2) for s in spectra]


def _pad(blocks: Sequence[Doubles]) -> Doubles:
    """Stack blocks of different heights, with zeros below; (n, w, d)."""
    v = np.zeros((len(blocks), max(map(len, blocks)), blocks[0].shape[1]))
    for row, block in zip(v, blocks, strict=True):
        row[: len(block)] = block
    return v


def block_width(dims: int, rank: int) -> int:
    """Return the number of vectors in a block.

    For the same number of products, many thin blocks find more than few thick ones. But blocks
    thinner than an eigenvalue's multiplicity may miss some of its vectors.
    """
    return min(dims, max(WIDTH, (rank + 1) // 2))


@lru_cache(maxsize=16)
def start_vectors(dims: int) -> Doubles:
    """Return the random vectors N(0, I) that every space contains; (WIDTH - 1, d)."""
    return _draw_normals(dims, WIDTH, seed=0)[1:]


@dataclass(frozen=True)
class Krylov:
    """The space of one point so far, and the block whose products it needs next."""

    rank: int
    basis: Doubles  # (m, d), orthonormal rows: Qᵀ
    T: Doubles  # (m, m)
    block: Doubles  # (w, d), orthonormal rows: Pᵀ
    L: Doubles  # (w, m)
    blocks: int = 0
    is_random: bool = True  # the block is random instead of A times the last one

    @classmethod
    def start(cls, dims: int, rank: int, toward: Doubles | None = None) -> "Krylov":
        vectors = _draw_normals(dims, block_width(dims, rank), seed=0)  # rows 1 on: start_vectors
        if toward is not None:
            vectors[0] = toward / max(float(np.linalg.norm(toward)), 1e-300)
        block = _orthonormalise(vectors, np.zeros((0, dims)), least=1e-9)
        return cls(rank, np.zeros((0, dims)), np.zeros((0, 0)), block, np.zeros((len(block), 0)))

    def extend(self, products: Doubles) -> "Krylov":
        """Move the block, whose products (w, d) these are, into the basis."""
        m = len(self.basis)
        basis = np.vstack([self.basis, self.block])
        new = products @ basis.T  # (w, m + w), the new rows of T
        corner = (new[:, m:] + new[:, m:].T) / 2  # symmetric but for float32's rounding
        T = np.block([[self.T, new[:, :m].T], [new[:, :m], corner]])
        return self._choose_block(basis, T, products - new @ basis)

    def _choose_block(self, basis: Doubles, T: Doubles, outside: Doubles) -> "Krylov":
        m, d = basis.shape
        # What A adds outside of the basis, as orthonormal rows: at most the d - m that are left.
        block = _orthonormalise(outside, basis, ROUNDING * float(np.abs(T).max()))[: d - m]
        L = np.zeros((len(block), m))
        L[:, m - len(outside) :] = block @ outside.T  # only the last block reaches outside
        # A adds nothing: the space is invariant. It may still miss copies of an eigenvalue with a
        # higher multiplicity than the block's width. Restart once with a random block to find them,
        # and again while there are fewer vectors than asked for.
        restarts = not len(block) and (not self.is_random or m < self.rank)
        if restarts:
            random = _draw_normals(d, len(outside), seed=m)
            block = _orthonormalise(random - (random @ basis.T) @ basis, basis, 1e-9)[: d - m]
            L = np.zeros((len(block), m))
        return Krylov(self.rank, basis, T, block, L, self.blocks + 1, restarts)

    @property
    def is_settled(self) -> bool:
        """True if the leading pairs are found, or no more can be."""
        if not len(self.block) or self.blocks == MOST:
            return True
        # The error estimate means little before the space has some vectors beyond the rank.
        is_early = self.is_random or self.blocks < FEWEST or len(self.basis) < 3 * self.rank
        return not is_early and self.angle <= ANGLE

    @property
    def angle(self) -> float:
        """Estimate the sine of the largest angle to the true leading space, from E = C - c I.

        By first-order perturbation theory, pair i contains pⱼᵀ E pᵢ / (λᵢ - λⱼ) of pair j, where p
        is a vector's part in P. E is unknown; its size is that on the last block, or that of L if
        larger.
        """
        k, w = self.rank, len(self.block)
        λ, U = self._pairs  # (m + w,), (m + w, m + w)
        p = U[-w:]
        # Nearly equal eigenvalues cannot be told apart, and which of them is last does not matter.
        gaps = np.maximum(λ[:k, None] - λ[k:], SMALLEST_GAP * np.abs(λ[:k, None]))
        last = self.T[-w:, -w:] - self._rest * np.eye(w)
        E = max(np.linalg.norm(last, 2), np.linalg.norm(self.L, 2))
        return float(E * np.linalg.norm(p[:, :k].T @ p[:, k:] / np.maximum(gaps, 1e-300)))

    @cached_property
    def _pairs(self) -> tuple[Doubles, Doubles]:
        """Eigenpairs of [[T, Lᵀ], [L, c I]], largest first; vectors are columns."""
        C = self._rest * np.eye(len(self.block))
        values, vectors = np.linalg.eigh(np.block([[self.T, self.L.T], [self.L, C]]))
        return values[::-1], vectors[:, ::-1]

    @property
    def _rest(self) -> float:
        """c; 0 for a random block, of which nothing is known."""
        w = len(self.block)
        return 0.0 if self.is_random else float(np.trace(self.T[-w:, -w:])) / max(w, 1)

    def spectrum(self) -> Spectrum:
        λ, U = self._pairs
        return Spectrum(λ.copy(), U.T @ np.vstack([self.basis, self.block]))


def _draw_normals(dims: int, rows: int, seed: int) -> Doubles:
    return np.random.default_rng(seed).standard_normal((min(dims, rows), dims))


def _orthonormalise(rows: Doubles, basis: Doubles, least: float) -> Doubles:
    """Return orthonormal rows that span these, without directions shorter than `least`.

    The rows are orthogonal to the basis but for rounding. Normalising short rows magnifies that
    rounding, so they are made orthogonal to the basis a second time. Twice is enough.
    """
    rows = _normalise(rows, least)
    return _normalise(rows - (rows @ basis.T) @ basis, 0.5)


def _normalise(rows: Doubles, least: float) -> Doubles:
    """Return rows of length 1, orthogonal to each other, without directions below `least`."""
    s, U = np.linalg.eigh(rows @ rows.T)  # squares of the singular values
    long = s > max(least, 1e-300) ** 2
    unit: Doubles = (U[:, long] / np.sqrt(s[long])).T @ rows
    return unit
