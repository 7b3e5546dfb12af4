"""Array types shared by all modules."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Reals: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Arrays: TypeAlias = dict[str, Floats]  # a graph's inputs or outputs
Named: TypeAlias = dict[str, NDArray[Any]]

FARTHEST = 1e6  # in model units: beyond it, float32 cannot tell nearby points apart
