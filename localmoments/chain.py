"""Steps of a Markov chain; their noise is a function of (seed, step).

A plain step is one call of the kernel's graph: it takes (state, noise(seed, t), scale[t mod
len(scale)]) to (state', mean); an isotropic floor, where asked for, then makes the transition's
covariance full rank (paper, section 3.2). A step with known columns is localmoments.clamp's,
one with a Metropolis correction localmoments.metropolis's.
"""

from collections.abc import Iterator

import numpy as np

from localmoments.arrays import Floats
from localmoments.clamp import clamped_calls, clamped_step
from localmoments.metropolis import metropolis_calls, metropolis_step
from localmoments.model import Arrays, Model
from localmoments.noise import FLOOR_NOISE, normals
from localmoments.transition import Call, Clamp, Position, Step, Transition, check_bounds

__all__ = [
    "Clamp",
    "Position",
    "Transition",
    "advance",
    "default_transition",
    "first_state",
    "points",
    "positions",
    "step_cost",
    "step_noise",
    "take_step",
]


def default_transition(model: Model, seed: int, kernel: str | None = None) -> Transition:
    """The model's own choice of kernel and scale."""
    name = kernel or model.manifest.default_kernel
    return Transition(name, seed, (model.manifest.kernels[name].scale,))


def first_state(model: Model, kernel: str, x: Floats, clamp: Clamp | None = None) -> Floats:
    """Input-space points (W, d) as the kernel's state (W, n)."""
    x = x if clamp is None else clamp.start(x)
    if model.manifest.kernels[kernel].space == "input":
        return x
    return model.run("encode", x=x, **model.noise_level(len(x)))["hidden"]


def points(model: Model, kernel: str, state: Floats) -> Floats:
    """Where a state (W, n) lies in input space (W, d)."""
    if model.manifest.kernels[kernel].space == "input":
        return state
    return model.run("decode", hidden=state, **model.noise_level(len(state)))["mean"]


def step_noise(model: Model, walk: Transition, rows: int, step: int) -> Floats:
    """What the kernel's graph consumes at a step; (W, noise)."""
    return normals(walk.seed, step, (rows, model.manifest.kernels[walk.kernel].noise))


def step_cost(model: Model, walk: Transition) -> int:
    """Graph calls of a step, the longest of a schedule: what it is charged as."""
    m = model.manifest
    if walk.metropolis:
        return metropolis_calls(m, walk.kernel)
    if walk.clamp is not None:
        return max(clamped_calls(m, walk.kernel, scale) for scale in walk.scale)
    return 1


def take_step(
    model: Model, walk: Transition, state: Floats, step: int, noise: Floats | None = None
) -> Step:
    """The calls of one step, from the state at `step`; `noise` where it was drawn already."""
    if walk.metropolis:
        return metropolis_step(model, walk, state, step)
    if walk.clamp is not None:
        return clamped_step(model, walk, walk.clamp, state, step)
    return _plain_step(model, walk, state, step, noise)


def _plain_step(
    model: Model, walk: Transition, state: Floats, step: int, noise: Floats | None
) -> Step:  # fmt: skip
    kernel = model.manifest.kernels[walk.kernel]
    if noise is None:
        noise = step_noise(model, walk, len(state), step)
    scale = np.full((len(state), 1), walk.scale_at(step), dtype=np.float32)
    outputs = yield Call(kernel.graph, {"state": state, "noise": noise, "scale": scale})
    following, mean = outputs["next"], outputs["mean"]
    if walk.floor > 0:
        following = following + walk.floor * normals(
            walk.seed, step, following.shape, stream=FLOOR_NOISE
        )
        check_bounds(step + 1, following)
    noisy = following if kernel.space == "input" else mean
    return Position(step + 1, following, mean, noisy)


def advance(model: Model, walk: Transition, state: Floats, step: int) -> Position:
    """The position at step + 1, from the state at `step`."""
    calls = take_step(model, walk, state, step)
    outputs: Arrays | None = None
    while True:
        try:
            call = next(calls) if outputs is None else calls.send(outputs)
        except StopIteration as end:
            position: Position = end.value
            return position
        outputs = model.run(call.graph, **call.inputs)
        check_bounds(step + 1, *outputs.values())


def positions(
    model: Model, walk: Transition, state: Floats, steps: int, first: int = 0
) -> Iterator[Position]:
    """The chain's positions after `steps` more steps each, from the state at step `first`."""
    for step in range(first, first + steps):
        position = advance(model, walk, state, step)
        state = position.state
        yield position
