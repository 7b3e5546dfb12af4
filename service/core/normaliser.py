"""The affine map between the user's units and the model's: z = (x - shift) / scale.

Means map back by x = D z + shift and covariances by D C D with D = diag(scale). The map is done
in double precision, because float32 would lose a column such as seconds since 1970.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from service.core.types import Doubles, Floats


@dataclass(frozen=True)
class Normaliser:
    """Per-feature affine map; `shift` and `scale` have shape (d,), every scale is positive."""

    shift: Doubles
    scale: Doubles

    @cached_property
    def is_identity(self) -> bool:
        return bool(np.all(self.shift == 0) and np.all(self.scale == 1))

    def to_model(self, x: NDArray[np.generic]) -> Floats:
        """User's units to the model's."""
        if self.is_identity:
            return np.ascontiguousarray(x, dtype=np.float32)
        return ((np.asarray(x, dtype=np.float64) - self.shift) / self.scale).astype(np.float32)

    def to_user(self, z: NDArray[np.floating]) -> Doubles:
        """Model's units to the user's."""
        if self.is_identity:
            return np.asarray(z, dtype=np.float64)
        return np.asarray(z, dtype=np.float64) * self.scale + self.shift

    def covariance_to_user(self, covariance: NDArray[np.floating]) -> Doubles:
        """C in the model's units to D C D in the user's; (..., d, d)."""
        return np.asarray(covariance, np.float64) * self.scale[:, None] * self.scale[None, :]

    def score_to_user(self, score: NDArray[np.floating]) -> Doubles:
        """A gradient of a log density, per model unit, to one per user's unit."""
        return np.asarray(score, dtype=np.float64) / self.scale
