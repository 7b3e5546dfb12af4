"""Data made on the spot, with the law it was drawn from.

The law is fixed (rotations from a constant seed); `data.seed` only chooses the draw, so
that two seeds are two samples of one truth.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trainer.data.known_laws import Float, GaussianMixture, Spiral

DEFAULT_ROWS = 20_000
DIMS = 8
_LAW_SEED = 1311

SYNTHETIC = ("gaussian", "mixture", "spiral")


Law = GaussianMixture | Spiral


def truth(name: str) -> Law:
    laws: dict[str, Callable[[], Law]] = {"gaussian": gaussian, "mixture": mixture}
    return laws.get(name, Spiral)()


def draw(name: str, rows: int | None, seed: int) -> tuple[Law, NDArray[np.float32]]:
    law = truth(name)
    x = law.sample(rows or DEFAULT_ROWS, np.random.default_rng(seed))
    return law, x.astype(np.float32)  # (n, d)


def gaussian() -> GaussianMixture:
    """Standard deviations from 2 down to 0.25 along rotated axes, away from the origin."""
    rng = np.random.default_rng(_LAW_SEED)
    C = _rotated(np.geomspace(2.0, 0.25, DIMS), rng)
    return GaussianMixture(np.ones(1), rng.normal(size=(1, DIMS)), C[None])


def mixture() -> GaussianMixture:
    """Three pencils of different orientation: one long axis each, so tangents are clear."""
    rng = np.random.default_rng(_LAW_SEED + 1)
    std = np.array([1.5, 0.6, 0.4, 0.3, 0.3, 0.2, 0.2, 0.2])
    C = np.stack([_rotated(std, rng) for _ in range(3)])
    means = 2.0 * _orthonormal(rng)[:3]  # pairwise 2.8 apart
    return GaussianMixture(np.array([0.5, 0.3, 0.2]), means, C)


def _rotated(std: Float, rng: np.random.Generator) -> Float:
    Q = _orthonormal(rng)
    C: Float = (Q * std**2) @ Q.T
    return C


def _orthonormal(rng: np.random.Generator) -> Float:
    Q, _ = np.linalg.qr(rng.standard_normal((DIMS, DIMS)))
    return np.asarray(Q, np.float64)
