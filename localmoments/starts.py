"""Where chains begin, as a function of the seed; walker i begins at the same place in any company.

- data: the artefact's start points, in an order that the seed shuffles, each used once before any
  is used again;
- noise: N(m, s² I), where m and s are the mean and the overall spread of the start points: as far
  out as the data and as bright, but without its structure.
"""

import numpy as np

from localmoments.arrays import Floats
from localmoments.model import Model
from localmoments.noise import START_NOISE, normals, shuffled


def from_data(model: Model, walkers: int, seed: int) -> Floats:
    """(W, d), in the model's units."""
    points = model.start_points()
    order = shuffled(seed, len(points))
    return points[order[np.arange(walkers) % len(points)]]


def from_noise(model: Model, walkers: int, seed: int) -> Floats:
    """(W, d), in the model's units."""
    points = model.start_points()
    m: Floats = points.mean(axis=0)  # (d,)
    s = np.float32((points - m).std())
    return m + s * normals(seed, 0, (walkers, points.shape[1]), stream=START_NOISE)
