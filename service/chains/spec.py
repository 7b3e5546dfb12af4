"""What a caller can ask of a chain, in the units of the data. None means the default."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from localmoments.arrays import Reals
from localmoments.chain import STEPS
from localmoments.chain_state import Clamp, Emission

CHAIN_ID = r"^[0-9a-f]{32}$"

# Defaults of POST /sample.
WALKERS = 4
THIN = 10  # or `steps`, if the first call is shorter


@dataclass(frozen=True)
class ChainSpec:
    """What stays fixed for the life of a chain. Later calls may repeat it but not change it."""

    model: str | None = None  # name or name@version
    walkers: int | None = None
    burn_in: int | None = None  # steps before the first sample
    kernel: str | None = None
    scale: Sequence[float] | None = None  # step sizes, used in turn
    floor: float | None = None  # standard deviation of isotropic noise, in model units
    seed: int | None = None
    start: Literal["data", "noise", "points", "chain"] | None = None
    start_points: Reals | None = None  # (1 or W, d), if start is "points"
    start_chain: str = ""  # id, if start is "chain"
    clamp: Clamp | None = None
    metropolis: bool | None = None


@dataclass(frozen=True)
class CallSpec:
    """Which chain one call moves, how far, and what it returns."""

    steps: int = STEPS
    thin: int | None = None  # sample every n-th step
    emit: Emission | None = None
    chain: str | None = None  # id of an existing chain; default: a new one
    from_step: int | None = None  # of an existing chain; default: its newest step
    streamed: bool = False
    seconds: float | None = None  # stop after this time
