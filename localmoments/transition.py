"""The values that a chain is made of: how it moves, where it stands, and what a step asks for.

A step is a generator. It yields the graph calls that it needs, one after another, is sent their
outputs, and returns the position it comes to. So the same step runs at once (`chain.advance`) or
over the batcher's passes, where its rows share every call with those of other chains.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import FARTHEST, Floats, Reals
from localmoments.errors import DivergedError
from localmoments.model import Arrays


@dataclass(frozen=True)
class ClampSpec:
    """Known columns in the units of the data; each array has one row, or one per walker."""

    mask: NDArray[np.bool_]  # (1, d) or (W, d), True where a column is known
    values: Reals  # (1, d) or (W, d)
    std: Reals  # (1, 1), (1, d) or (W, d): measurement error, 0 for exactly


@dataclass(frozen=True)
class Clamp:
    """Columns that are known, exactly or up to a standard deviation, in the model's units.

    Each array has one row for every walker, or one row for all of them.
    """

    mask: NDArray[np.bool_]  # (W, d) or (1, d)
    values: Floats  # (W, d) or (1, d)
    std: Floats  # (W, d) or (1, d), 0 where a column is known exactly

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Known without error; (W or 1, d)."""
        exact: NDArray[np.bool_] = self.mask & (self.std == 0)
        return exact

    def start(self, x: Floats) -> Floats:
        """With every known column at its value: where a chain begins."""
        return np.where(self.mask, self.values, x)

    def hold(self, x: Floats) -> Floats:
        """With the exactly known columns at their values."""
        return np.where(self.exact, self.values, x)


@dataclass(frozen=True)
class Transition:
    """How a chain moves: its kernel and the numbers that fix every step."""

    kernel: str
    seed: int
    scale: Sequence[float]
    floor: float = 0.0
    clamp: Clamp | None = None
    metropolis: bool = False

    @property
    def is_plain(self) -> bool:
        """A step is one call of the kernel's own graph."""
        return self.clamp is None and not self.metropolis

    def scale_at(self, step: int) -> float:
        return self.scale[step % len(self.scale)]


@dataclass(frozen=True)
class Position:
    """Where a chain stands after `step` steps, and what it would emit there."""

    step: int
    state: Floats  # (W, n)
    mean: Floats  # (W, d)
    noisy: Floats  # (W, d)
    accepted: int = 0  # walkers whose proposal was accepted, where there is a Metropolis correction


@dataclass(frozen=True)
class Call:
    """One pass of a graph; every array has W rows."""

    graph: str
    inputs: Arrays


Step = Generator[Call, Arrays, Position]


def check_bounds(step: int, *arrays: Floats) -> None:
    """Fail on NaN, on infinity, and on values too far out for float32 to tell points apart."""
    if not all((np.abs(array) <= FARTHEST).all() for array in arrays):
        raise DivergedError(f"The chain diverged at step {step}. Try a smaller `scale`.", step=step)
