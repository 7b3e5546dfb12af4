"""Noise as a pure function of (seed, step), so that a chain's state needs no generator.

Philox is counter-based: the seed is its key and the step sits in the counter's high words, so
any step's noise can be drawn at once, in any order, on any machine.
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


_own = threading.local()


def normals(seed: int, step: int, shape: tuple[int, ...], stream: int = STEP_NOISE) -> Floats:
    """Standard normals for one step; row i is the same however many rows are asked for."""
    return _generator(seed, step, stream).standard_normal(shape, dtype=np.float32)


def uniforms(seed: int, step: int, count: int, stream: int) -> Doubles:
    """Numbers in (0, 1]; the i-th is the same however many are asked for."""
    return 1.0 - _generator(seed, step, stream).random(count)


def shuffled(seed: int, count: int) -> NDArray[np.int64]:
    """0 to count - 1 in an order that the seed chooses."""
    return _generator(seed, 0, START_ORDER).permutation(count)


def _generator(seed: int, step: int, stream: int) -> np.random.Generator:
    """One a thread, set to its place: making one takes ten times as long."""
    if not hasattr(_own, "generator"):
        _own.generator = np.random.Generator(np.random.Philox(key=0))
        _own.state = _own.generator.bit_generator.state
    generator: np.random.Generator = _own.generator
    state: Any = _own.state
    state["state"]["counter"][:] = (0, 0, step, stream)
    state["state"]["key"][:] = (seed & (2**64 - 1), seed >> 64)
    generator.bit_generator.state = state  # with nothing left over from the last draw
    return generator
