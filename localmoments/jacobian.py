"""r(x) and A(x) as a matrix, from the `moments` graph, as part of a step: for few columns."""

from collections.abc import Generator

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.model import Arrays, Model
from localmoments.transition import Call

PROBES = 32  # products with A in one call, which bounds the memory that it takes


def matrix_calls(d: int) -> int:
    return -(-d // PROBES)


def mean_and_matrix(
    model: Model, x: Floats, sigma: float
) -> Generator[Call, Arrays, tuple[Doubles, Doubles]]:
    """r (W, d) and A (W, d, d), of a conditioned model at level sigma."""
    rows, d = x.shape
    level, products = model.noise_level(rows, sigma), []
    for first in range(0, d, PROBES):
        units = np.eye(d, dtype=np.float32)[first : first + PROBES]
        v = np.ascontiguousarray(np.broadcast_to(units, (rows, *units.shape)))
        out = yield Call("moments", {"x": x, "v": v, **level})
        products.append(out["products"].astype(np.float64))
    return out["mean"].astype(np.float64), np.concatenate(products, axis=1)
