"""Array types used on every border."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]

FARTHEST = 1e6  # in the model's units: beyond it float32 tells points apart no more
