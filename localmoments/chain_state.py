"""The values of a chain: how it moves, where it stands, and which columns are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import FARTHEST, Floats, Reals
from localmoments.errors import DivergedError
from localmoments.graph_calls import Calls

Emission: TypeAlias = Literal["mean", "noisy"]


@dataclass(frozen=True)
class Clamp:
    """Known columns; each array has one row, or one per walker.

    A caller gives a clamp in the units of the data. `chain.make_clamp` converts it to model units,
    which a `Transition` needs.
    """

    mask: NDArray[np.bool_]  # (1, d) or (W, d), True where a column is known
    values: Reals  # (1, d) or (W, d)
    std: Reals  # (1, 1), (1, d) or (W, d): measurement error, 0 if a column is known exactly

    @property
    def exact(self) -> NDArray[np.bool_]:
        """The columns that are known without error; (1, d) or (W, d)."""
        exact: NDArray[np.bool_] = self.mask & (self.std == 0)
        return exact

    def start(self, x: Floats) -> Floats:
        """Set every known column of x (W, d) to its value: where a chain starts."""
        return np.where(self.mask, self.values, x)

    def hold(self, x: Floats) -> Floats:
        """Set the exactly known columns of x (W, d) to their values."""
        return np.where(self.exact, self.values, x)


@dataclass(frozen=True)
class Transition:
    """How a chain moves: its kernel and the numbers that fix every step."""

    kernel: str
    seed: int
    scale: Sequence[float]
    floor: float = 0.0
    clamp: Clamp | None = None  # in model units
    metropolis: bool = False

    @property
    def is_plain(self) -> bool:
        """True if a step is one call of the kernel's own graph."""
        return self.clamp is None and not self.metropolis

    def scale_at(self, step: int) -> float:
        """Return the scale of the step that leaves step `step`; a schedule repeats."""
        return self.scale[step % len(self.scale)]


@dataclass(frozen=True)
class Position:
    """Where a chain stands after `step` steps, and the samples that it may emit there."""

    step: int
    state: Floats  # (W, n)
    mean: Floats  # (W, d)
    noisy: Floats  # (W, d)
    accepted: int = 0  # walkers whose proposal was accepted by a Metropolis correction


Step: TypeAlias = Calls[Position]


def check_bounds(step: int, *arrays: Floats) -> None:
    """Raise DivergedError for NaN, infinity, and values beyond FARTHEST."""
    if not all((np.abs(array) <= FARTHEST).all() for array in arrays):
        raise DivergedError(f"The chain diverged at step {step}. Try a smaller `scale`.", step=step)
