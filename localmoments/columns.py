"""The affine map between the user's units and the model's: z = (x - shift) / scale.

Means map back by x = D z + shift and covariances by D C D with D = diag(scale). The map is done
in double precision where float32 would lose something, such as a column of seconds since 1970.
Where no shift is large beside its scale, as with pixels, float32 holds all that the model's own
float32 knew, in half the bytes and half the digits.
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
    """Per-feature affine map; `shift` and `scale` have shape (d,), every scale is positive."""

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
        """What holds values in the user's units as exactly as the model knew them."""
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
        """User's units to the model's."""
        if self.is_identity:
            return np.ascontiguousarray(x, dtype=np.float32)
        moved: Doubles = np.asarray(x, dtype=np.float64)
        if self._shifts:
            moved = moved - self.shift
        return (moved / self.scale).astype(np.float32)

    @overload
    def to_user(self, z: Doubles) -> Doubles: ...
    @overload
    def to_user(self, z: Floats) -> Reals: ...

    def to_user(self, z: Reals) -> Reals:
        """Model's units to the user's; of float32, as `dtype`."""
        if z.dtype == np.float64:
            return z * self.scale + self.shift
        if self.is_identity:
            return z
        scale, shift = self._affine
        x: Reals = z.astype(self.dtype, copy=False) * scale
        return x + shift if self._shifts else x

    def within(self, distance: float) -> tuple[float, float]:
        """What every feature may be, and be within a distance in the model's units."""
        if distance not in self._reaches:
            low, high = self.shift - distance * self.scale, self.shift + distance * self.scale
            self._reaches[distance] = float(low.max()), float(high.min())
        return self._reaches[distance]

    def covariance_to_user(self, covariance: NDArray[np.floating]) -> Doubles:
        """C in the model's units to D C D in the user's; (..., d, d)."""
        return np.asarray(covariance, np.float64) * self.scale[:, None] * self.scale[None, :]

    def score_to_user(self, score: NDArray[np.floating]) -> Doubles:
        """A gradient of a log density, per model unit, to one per user's unit."""
        return np.asarray(score, dtype=np.float64) / self.scale


def is_within_reach(z: Floats) -> bool:
    """Return True if no entry of z (n, d), in model units, is beyond FARTHEST.

    This quick test takes one number per row: False does not mean that a row is too far.
    """
    return bool(np.vecdot(z, z).max() < (1 - 1e-5) * FARTHEST**2)
