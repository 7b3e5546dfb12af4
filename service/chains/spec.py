"""What a caller can ask of a chain, in the units of its data; None stands for "not said"."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from localmoments.arrays import Reals
from localmoments.transition import ClampSpec

Emission = Literal["mean", "noisy"]

WALKERS, STEPS, THIN = 4, 100, 10


@dataclass(frozen=True)
class Start:
    """Where walkers begin: one of the four."""

    kind: Literal["data", "noise", "points", "chain"] = "data"
    points: Reals | None = None  # (W, d)
    chain: str = ""


@dataclass(frozen=True)
class ChainSpec:
    """What fixes a chain for good; on a chain that exists it may only be said again."""

    model: str | None = None
    walkers: int | None = None
    burn_in: int | None = None
    kernel: str | None = None
    scale: Sequence[float] | None = None
    floor: float | None = None
    seed: int | None = None
    start: Start | None = None
    clamp: ClampSpec | None = None
    metropolis: bool | None = None


@dataclass(frozen=True)
class StepRange:
    """How far one call walks, and what it hands out of that."""

    steps: int = STEPS
    thin: int | None = None
    emit: Emission | None = None
    from_step: int | None = None
    streamed: bool = False
    seconds: float | None = None  # the most that it may take
