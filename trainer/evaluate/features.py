"""What rows are compared by: a classifier's last hidden layer, or principal components."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from sklearn.decomposition import PCA

from localmoments.arrays import Floats

DIMS = 64
FITTED_ROWS = 10_000


class Features(Protocol):
    @property
    def words(self) -> str: ...

    def __call__(self, x: Floats) -> Floats: ...  # (n, d) -> (n, f)


@dataclass(frozen=True)
class Principal:
    """Projections on the axes along which the training rows spread most."""

    mean: Floats  # (d,)
    axes: Floats  # (k, d)

    @property
    def words(self) -> str:
        return f"{len(self.axes)} principal components"

    def __call__(self, x: Floats) -> Floats:
        return np.asarray((x - self.mean) @ self.axes.T, np.float32)


def principal(rows: Floats) -> Principal:
    """Of at most FITTED_ROWS rows, spread over all."""
    some = rows[:: -(-len(rows) // FITTED_ROWS)]
    k = min(DIMS, some.shape[1], len(some) - 1)
    pca = PCA(max(1, k), random_state=0).fit(some)
    return Principal(pca.mean_.astype(np.float32), pca.components_.astype(np.float32))
