"""Noise as a pure function of (seed, step), so that a chain's state needs no generator.

Philox is counter-based: the seed is its key and the step sits in the counter's high words, so
any step's noise can be drawn at once, in any order, on any machine.
"""

import numpy as np

from service.core.types import Floats

STEP_NOISE = 0  # what a kernel consumes
FLOOR_NOISE = 1  # the isotropic floor added after a step
START_NOISE = 2  # where a chain that starts from noise begins


def normals(seed: int, step: int, shape: tuple[int, ...], stream: int = STEP_NOISE) -> Floats:
    """Standard normals for one step; row i is the same however many rows are asked for."""
    counter = np.array([0, 0, step, stream], dtype=np.uint64)
    key = np.array([seed & (2**64 - 1), seed >> 64], dtype=np.uint64)
    generator = np.random.Generator(np.random.Philox(counter=counter, key=key))
    return generator.standard_normal(shape, dtype=np.float32)
