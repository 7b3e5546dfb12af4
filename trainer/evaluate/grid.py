"""Two equations of the paper solved on a grid: the stationary law of a chain, and the best RCAE.

**The operator equation** (eq. mixture), in one or two columns:

    π(x) = ∫ π(x̃) N(x; μ(x̃), Σ(x̃)) dx̃

On a grid of cells it is π = π P, where P[i, j] is the mass that the Gaussian of cell i puts into
cell j. A row that loses mass beyond the edge is scaled to 1, so P is a stochastic matrix, and π is
its left eigenvector of eigenvalue 1. It is the limit of power iteration, computed here by Arnoldi's
method, which needs fewer products if the chain mixes slowly.

**The minimiser of L_global** (eq. L-global) over all functions r, in one column:

    min ∫ p (x - r)² + α p r'²  dx        so        p r - α (p r')' = p x
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigs, spsolve
from scipy.special import ndtr

from localmoments.arrays import Doubles

NEGLIGIBLE = 1e-9  # mass of a cell that is left out


@dataclass(frozen=True)
class Grid:
    """Cells of equal size over a box; one or two columns."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    cells: tuple[int, ...]

    @property
    def edges(self) -> list[Doubles]:
        """Edges of the cells along every column; (n + 1,) each."""
        ends = zip(self.low, self.high, self.cells, strict=True)
        return [np.linspace(a, b, n + 1) for a, b, n in ends]

    @property
    def volume(self) -> float:
        return float(np.prod([e[1] - e[0] for e in self.edges]))

    def centres(self) -> Doubles:
        """Centres of the cells, the last column varying fastest; (n, d)."""
        middles = [(e[1:] + e[:-1]) / 2 for e in self.edges]
        return np.stack(np.meshgrid(*middles, indexing="ij"), -1).reshape(-1, len(middles))

    def histogram(self, x: Doubles) -> Doubles:
        """The part of rows x (m, d) in each cell; (n,)."""
        counts, _ = np.histogramdd(x, self.edges)
        return np.asarray(counts.ravel() / len(x), np.float64)

    def merge(self, law: Doubles) -> Doubles:
        """Masses of cells of twice the size, where a histogram is less noisy."""
        halves = [side for n in self.cells for side in (n // 2, 2)]
        odd = tuple(range(1, len(halves), 2))
        return np.asarray(law.reshape(halves).sum(axis=odd).ravel(), np.float64)


def solve(grid: Grid, mu: Doubles, sigma: Doubles) -> Doubles:
    """π as the mass of each cell (n,), for μ (n, d) and Σ (n, d, d) at the cells' centres.

    Example, an autoregression with stationary variance 1:
        >>> grid = Grid((-6.0,), (6.0,), (300,))
        >>> x = grid.centres()
        >>> π = solve(grid, 0.6 * x, np.full((300, 1, 1), 0.64))
        >>> round(float(π @ x[:, 0] ** 2), 2)
        1.0
    """
    P = transitions(grid, mu, sigma)
    start = np.full(P.shape[0], 1.0 / P.shape[0])
    for _ in range(50):  # a few plain steps, so that Arnoldi starts near π
        start = start @ P
    _, vectors = eigs(P.T, k=1, which="LM", v0=start, tol=1e-10, ncv=60)
    π = np.abs(vectors[:, 0].real)
    return np.asarray(π / π.sum(), np.float64)


def transitions(grid: Grid, mu: Doubles, sigma: Doubles) -> sparse.csr_array:
    """P, row by row: the mass of each Gaussian in each cell; (n, n)."""
    rows = _line if len(grid.cells) == 1 else _plane
    blocks = []
    for start in range(0, len(mu), 256):
        part = slice(start, start + 256)
        mass = rows(grid.edges, mu[part], sigma[part])
        mass[mass < NEGLIGIBLE] = 0
        blocks.append(sparse.csr_array(mass / mass.sum(1, keepdims=True)))
    return sparse.csr_array(sparse.vstack(blocks))


def _line(edges: list[Doubles], mu: Doubles, sigma: Doubles) -> Doubles:
    """Masses in one column; (B, n)."""
    mass: Doubles = np.diff(ndtr((edges[0] - mu) / np.sqrt(sigma[:, 0])), axis=1)
    return mass


def _plane(edges: list[Doubles], mu: Doubles, sigma: Doubles) -> Doubles:
    """Masses in two columns: the first column's, times the second's given the first at the middle
    of the cell; (B, n1 n2)."""
    first, second = edges
    s1, s12, s2 = sigma[:, 0, 0, None], sigma[:, 0, 1, None], sigma[:, 1, 1, None]  # (B, 1)
    marginal = np.diff(ndtr((first - mu[:, :1]) / np.sqrt(s1)), axis=1)  # (B, n1)
    middle = (first[1:] + first[:-1]) / 2
    mean = mu[:, 1:] + s12 / s1 * (middle - mu[:, :1])  # (B, n1)
    spread = np.sqrt(np.maximum(s2 - s12**2 / s1, 1e-12))[:, :, None]  # (B, 1, 1)
    given = np.diff(ndtr((second - mean[:, :, None]) / spread), axis=2)  # (B, n1, n2)
    return np.asarray((marginal[:, :, None] * given).reshape(len(mu), -1), np.float64)


def best_reconstruction(grid: Grid, p: Doubles, alpha: float) -> Doubles:
    """r at the cells' centres (n,), least in L_global for a law with masses p (n,).

    Boundary condition: p r' = 0 at the ends of the grid, as the minimum requires.
    """
    x = grid.centres()[:, 0]
    between = alpha * (p[1:] + p[:-1]) / 2 / (x[1] - x[0]) ** 2  # αp between two cells
    diagonal = p + np.append(between, 0) + np.insert(between, 0, 0)
    M = sparse.diags_array([-between, diagonal, -between], offsets=[-1, 0, 1], format="csc")
    return np.asarray(spsolve(M, p * x), np.float64)


def total_variation(a: Doubles, b: Doubles) -> float:
    """½ Σ |a - b| of two laws on the same cells."""
    return float(0.5 * np.abs(a - b).sum())
