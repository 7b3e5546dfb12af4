"""Array types used on every border."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Reals: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Named: TypeAlias = dict[str, NDArray[Any]]

FARTHEST = 1e6  # in the model's units: beyond it float32 tells points apart no more
