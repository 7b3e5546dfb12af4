"""Noise as a pure function of (seed, step), so that a chain's state needs no generator.

Philox is counter-based: the seed is its key and the step is in the counter's high words. So the
noise of any step can be drawn in any order, on any machine.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats

STEP_NOISE = 0  # what a kernel consumes
FLOOR_NOISE = 1  # the isotropic floor added after a step
START_NOISE = 2  # where a chain that starts from noise begins
START_ORDER = 3  # which start points a chain's walkers take
ACCEPT_NOISE = 4  # which proposals are accepted


_local = threading.local()


def normals(seed: int, step: int, shape: tuple[int, ...], stream: int = STEP_NOISE) -> Floats:
    """Draw standard normals for one step; row i does not depend on the number of rows."""
    return _generator(seed, step, stream).standard_normal(shape, dtype=np.float32)


def uniforms(seed: int, step: int, count: int, stream: int) -> Doubles:
    """Draw numbers in (0, 1]; the i-th does not depend on `count`. Their logarithm is finite."""
    return 1.0 - _generator(seed, step, stream).random(count)


def shuffle(seed: int, count: int) -> NDArray[np.int64]:
    """Return 0 to count - 1 in an order that depends on the seed."""
    return _generator(seed, 0, START_ORDER).permutation(count)


def _generator(seed: int, step: int, stream: int) -> np.random.Generator:
    """Return this thread's generator, set to (seed, step, stream).

    Setting the state of an existing generator is ten times as fast as making a new one.
    """
    if not hasattr(_local, "generator"):
        _local.generator = np.random.Generator(np.random.Philox(key=0))
        _local.state = _local.generator.bit_generator.state
    generator: np.random.Generator = _local.generator
    state: Any = _local.state
    state["state"]["counter"][:] = (0, 0, step, stream)
    state["state"]["key"][:] = (seed & (2**64 - 1), seed >> 64)
    generator.bit_generator.state = state  # also drops numbers buffered by the last draw
    return generator
