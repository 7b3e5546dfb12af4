"""One walk of a Markov chain over a kernel's graph; its noise is a function of (seed, step).

Step t takes (state, noise(seed, t), scale[t mod len(scale)]) to (state', mean); an isotropic
floor, where asked for, then makes the transition's covariance full rank (paper, section 3.2), and
a clamp puts back the columns that are known, so that the others are sampled given them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.core.errors import DivergedError
from service.core.noise import FLOOR_NOISE, normals
from service.core.types import FARTHEST, Floats
from service.engine.model import Arrays, Model


@dataclass(frozen=True)
class Clamp:
    """Columns whose values are known."""

    mask: NDArray[np.bool_]  # (d,)
    values: Floats  # (W, d), or (1, d) for all walkers

    def applied(self, x: Floats) -> Floats:
        return np.where(self.mask, self.values, x)


@dataclass(frozen=True)
class Walk:
    """How a chain moves: its kernel and the numbers that fix every step."""

    kernel: str
    seed: int
    scale: Sequence[float]
    floor: float = 0.0
    clamp: Clamp | None = None


@dataclass(frozen=True)
class Position:
    """Where a chain stands after `step` steps, and what it would emit there."""

    step: int
    state: Floats  # (W, n)
    mean: Floats  # (W, d)
    noisy: Floats  # (W, d)


def default_walk(model: Model, seed: int, kernel: str | None = None) -> Walk:
    """The model's own choice of kernel and scale."""
    name = kernel or model.manifest.default_kernel
    return Walk(name, seed, (model.manifest.kernels[name].scale,))


def first_state(model: Model, kernel: str, x: Floats, clamp: Clamp | None = None) -> Floats:
    """Input-space points (W, d) as the kernel's state (W, n)."""
    x = x if clamp is None else clamp.applied(x)
    if model.manifest.kernels[kernel].space == "input":
        return x
    return model.run("encode", x=x, **model.noise_level(len(x)))["hidden"]


def points(model: Model, kernel: str, state: Floats) -> Floats:
    """Where a state (W, n) lies in input space (W, d)."""
    if model.manifest.kernels[kernel].space == "input":
        return state
    return model.run("decode", hidden=state, **model.noise_level(len(state)))["mean"]


def step_noise(model: Model, walk: Walk, rows: int, step: int) -> Floats:
    """What the kernel consumes at a step; (W, noise)."""
    return normals(walk.seed, step, (rows, model.manifest.kernels[walk.kernel].noise))


def step_inputs(
    model: Model, walk: Walk, state: Floats, step: int, noise: Floats | None = None
) -> Arrays:  # fmt: skip
    """For the kernel's graph; `noise` where it was drawn already."""
    if noise is None:
        noise = step_noise(model, walk, len(state), step)
    scale = np.full((len(state), 1), walk.scale[step % len(walk.scale)], dtype=np.float32)
    return {"state": state, "noise": noise, "scale": scale}


def landed(model: Model, walk: Walk, outputs: Arrays, step: int) -> Position:
    """The position at step + 1, from the kernel's answer, which is within bounds."""
    kernel = model.manifest.kernels[walk.kernel]
    following, mean = outputs["next"], outputs["mean"]
    if walk.floor > 0:
        following = following + walk.floor * normals(
            walk.seed, step, following.shape, stream=FLOOR_NOISE
        )
    if walk.clamp is not None:
        mean = walk.clamp.applied(mean)
        following = first_state(
            model, walk.kernel, following if kernel.space == "input" else mean, walk.clamp
        )
    if walk.floor > 0 or walk.clamp is not None:
        check_bounds(step + 1, following, mean)
    noisy = following if kernel.space == "input" else mean
    return Position(step + 1, following, mean, noisy)


def advance(model: Model, walk: Walk, state: Floats, step: int) -> Position:
    """The position at step + 1, from the state at `step`."""
    graph = model.manifest.kernels[walk.kernel].graph
    outputs = model.run(graph, **step_inputs(model, walk, state, step))
    check_bounds(step + 1, *outputs.values())
    return landed(model, walk, outputs, step)


def check_bounds(step: int, *arrays: Floats) -> None:
    """NaN and infinity fail here as well."""
    if not all((np.abs(array) <= FARTHEST).all() for array in arrays):
        raise DivergedError(
            f"The chain left all bounds at step {step}; a smaller scale may keep it.", step=step
        )


def positions(
    model: Model, walk: Walk, state: Floats, steps: int, first: int = 0
) -> Iterator[Position]:
    """The chain's positions after `steps` more steps each, from the state at step `first`."""
    for step in range(first, first + steps):
        position = advance(model, walk, state, step)
        state = position.state
        yield position
