"""The affine map between the user's units and the model's: z = (x - shift) / scale.

Means map back by x = D z + shift and covariances by D C D, with D = diag(scale). The map uses
double precision if float32 would lose digits, as for a column of seconds since 1970. If no shift is
large compared with its scale, as for pixels, float32 keeps all digits of the model's own float32.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import FARTHEST, Doubles, Floats, Reals

SMALL_SHIFT = 8.0  # in scales


@dataclass(frozen=True)
class Normaliser:
    """An affine map per column; shift and scale are (d,), and every scale is positive."""

    shift: Doubles
    scale: Doubles

    @cached_property
    def is_identity(self) -> bool:
        return bool(np.all(self.shift == 0) and np.all(self.scale == 1))

    @cached_property
    def is_uniform(self) -> bool:
        """All columns have the same scale, as pixels do."""
        return bool(np.all(self.scale == self.scale[0]))

    @cached_property
    def _shifts(self) -> bool:
        return bool(np.any(self.shift))

    @cached_property
    def dtype(self) -> np.dtype[np.floating]:
        """The type that holds values in the units of the data without losing digits."""
        small = np.all(np.abs(self.shift) <= SMALL_SHIFT * self.scale)
        reached = FARTHEST * self.scale.max() < np.finfo(np.float32).max / 2
        return np.dtype(np.float32 if small and reached else np.float64)

    @cached_property
    def _reaches(self) -> dict[float, tuple[float, float]]:
        return {}

    @cached_property
    def _affine(self) -> tuple[Reals, Reals]:
        return self.scale.astype(self.dtype), self.shift.astype(self.dtype)

    def to_model(self, x: NDArray[np.generic]) -> Floats:
        """Convert rows from the units of the data to model units."""
        if self.is_identity:
            return np.ascontiguousarray(x, dtype=np.float32)
        offset: Doubles = np.asarray(x, dtype=np.float64)
        if self._shifts:
            offset = offset - self.shift
        return (offset / self.scale).astype(np.float32)

    @overload
    def to_user(self, z: Doubles) -> Doubles: ...
    @overload
    def to_user(self, z: Floats) -> Reals: ...

    def to_user(self, z: Reals) -> Reals:
        """Convert rows from model units to the units of the data; float32 becomes `dtype`."""
        if z.dtype == np.float64:
            return z * self.scale + self.shift
        if self.is_identity:
            return z
        scale, shift = self._affine
        x: Reals = z.astype(self.dtype, copy=False) * scale
        return x + shift if self._shifts else x

    def within(self, distance: float) -> tuple[float, float]:
        """Return the range in which every column is within a distance, in model units."""
        if distance not in self._reaches:
            low, high = self.shift - distance * self.scale, self.shift + distance * self.scale
            self._reaches[distance] = float(low.max()), float(high.min())
        return self._reaches[distance]

    def covariance_to_user(self, covariance: NDArray[np.floating]) -> Doubles:
        """Convert C in model units to D C D in the units of the data; (..., d, d)."""
        return np.asarray(covariance, np.float64) * self.scale[:, None] * self.scale[None, :]

    def score_to_user(self, score: NDArray[np.floating]) -> Doubles:
        """Convert the gradient of a log density from model units to the units of the data."""
        return np.asarray(score, dtype=np.float64) / self.scale


def is_within_reach(z: Floats) -> bool:
    """Return True if no entry of z (n, d), in model units, is beyond FARTHEST.

    This quick test takes one number per row: False does not mean that a row is too far.
    """
    return bool(np.vecdot(z, z).max() < (1 - 1e-5) * FARTHEST**2)
