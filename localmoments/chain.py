"""A Markov chain: how it is set up, where it starts, and its steps.

A plain step is one call of the kernel's graph. It maps (state, noise(seed, t), scale[t mod
len(scale)]) to (state', mean). An optional isotropic floor makes the transition's covariance full
rank (paper, section 3.2). `localmoments.clamp` takes the step when some columns are known, and
`localmoments.metropolis` takes it with a Metropolis correction.

Noise is a function of (seed, step), so a chain is a function of its transition and its first
state, and walker i takes the same path whatever the other walkers are.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from localmoments import clamp as clamps
from localmoments import metropolis as corrections
from localmoments.arrays import FARTHEST, Floats, Reals
from localmoments.chain_state import Clamp, Position, Step, Transition, check_bounds
from localmoments.errors import InputError
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.graph_calls import Call, run_calls
from localmoments.noise import FLOOR_NOISE, START_NOISE, normals, shuffle

if TYPE_CHECKING:
    from localmoments.model import Model

STEPS = 100  # the default number of steps of a call
MOST_FLOOR = 1e3  # in model units
MOST_SEED = 2**63 - 1
SEED_BITS = 53  # JSON readers that use doubles keep integers of this size exactly

Start = Literal["data", "noise"]


def make_transition(
    model: Model,
    *,
    kernel: str | None = None,
    scale: float | Sequence[float] | None = None,
    floor: float = 0.0,
    seed: int | None = None,
    clamp: Clamp | None = None,
    metropolis: bool = False,
) -> Transition:
    """Fill in the model's defaults and check that the parts go together.

    Args:
        kernel: a kernel of the model. Default: the model's own, or with `clamp` or `metropolis`
            the first of the model's kernels that supports it.
        scale: the step size, or a schedule of step sizes that repeats. Default: the kernel's.
        floor: standard deviation of isotropic noise added after each step, in model units.
        seed: 0 to 2**63 - 1. Default: a random one.
        clamp: known columns in model units; see `make_clamp`.
        metropolis: accept or reject each step, to correct the bias of long steps.

    Raises:
        InputError: the model has no such kernel, or the kernel does not support the options.
    """
    kernel = _choose_kernel(model, kernel, clamp is not None, metropolis)
    _check_kernel(model, kernel, clamp is not None, metropolis, floor)
    if scale is None:
        m = model.manifest
        scale = m.kernels[kernel].scale if clamp is None else clamps.default_scale(m, kernel)
    schedule = tuple(np.atleast_1d(np.asarray(scale, np.float64)).tolist())
    if not 0 <= floor <= MOST_FLOOR:
        raise InputError(f"`floor` must be a number from 0 to {MOST_FLOOR:g}.")
    _check_scale(model, kernel, schedule, clamp is not None)
    if seed is None:
        seed = secrets.randbits(SEED_BITS)
    if not 0 <= seed <= MOST_SEED:
        raise InputError(f"`seed` must be from 0 to {MOST_SEED}.")
    return Transition(kernel, seed, schedule, floor, clamp, metropolis)


def make_clamp(model: Model, clamp: Clamp, walkers: int) -> Clamp:
    """Convert known columns from the units of the data to model units.

    Raises:
        InputError: a shape does not fit the model or the number of walkers, a value is out of
            range, or the model cannot use `std`.
    """
    d = model.manifest.input_dims
    for name, array in (("mask", clamp.mask), ("values", clamp.values), ("std", clamp.std)):
        if array.shape[1] != d and not (name == "std" and array.shape == (1, 1)):
            raise InputError(
                f"clamp.{name} has {array.shape[1]} columns, but a row has {d} columns."
            )
        if len(array) not in (1, walkers):
            raise InputError(
                f"clamp.{name} has {len(array)} rows for {walkers} walkers; give one, or all."
            )
    if np.any(clamp.std > 0) and model.manifest.covariance_scale != "absolute":
        raise InputError(
            f"`clamp.std` needs covariances of known scale, which {model.manifest.reference} does "
            "not have. Leave it out."
        )
    if not np.all(clamp.std >= 0):
        raise InputError("clamp.std has a negative number.")
    units = model.manifest.normaliser
    values = np.where(clamp.mask, clamp.values, units.shift)  # an unknown column may hold anything
    model.manifest.check_range(values, "clamp.values")
    std = np.where(clamp.mask, np.minimum(clamp.std / units.scale, FARTHEST), 0.0)
    return Clamp(clamp.mask, units.to_model(values), std.astype(np.float32))


def check_start_points(model: Model, points: Reals, walkers: int) -> None:
    """Refuse start points that do not fit the model or the number of walkers.

    Args:
        points: (1 or walkers, d), in the units of the data.

    Raises:
        InputError: naming what does not fit.
    """
    model.manifest.check_rows(points, "start.points")
    if len(points) not in (1, walkers):
        raise InputError(f"start has {len(points)} points for {walkers} walkers; give one, or all.")


def start_state(
    model: Model, transition: Transition, walkers: int, start: Start | Reals = "data"
) -> Floats:
    """Return the state at step 0; (walkers, n). Runs a graph if the kernel's state is hidden.

    Args:
        start: "data", "noise", or points (1 or walkers, d) in the units of the data.
    """
    x = draw_starts(model, walkers, transition.seed, start)
    return encode_state(model, transition.kernel, x, transition.clamp)


def draw_starts(model: Model, walkers: int, seed: int, start: Start | Reals = "data") -> Floats:
    """Return where walkers start, in model units; (walkers, d).

    - data: the artefact's start points, in an order that the seed shuffles. Each is used once
      before any is used again.
    - noise: N(m, s² I), where m and s are the mean and the overall standard deviation of the
      start points.
    - points: (1 or walkers, d) in the units of the data.
    """
    if not isinstance(start, str):
        check_start_points(model, start, walkers)
        return np.repeat(model.manifest.normaliser.to_model(start), walkers // len(start), 0)
    points = model.start_points()
    if start == "data":
        order = shuffle(seed, len(points))
        return points[order[np.arange(walkers) % len(points)]]
    m: Floats = points.mean(axis=0)  # (d,)
    s = np.float32((points - m).std())
    return m + s * normals(seed, 0, (walkers, points.shape[1]), stream=START_NOISE)


def encode_state(model: Model, kernel: str, x: Floats, clamp: Clamp | None = None) -> Floats:
    """Turn points (W, d) in model units into the kernel's state (W, n)."""
    x = x if clamp is None else clamp.start(x)
    if model.manifest.kernels[kernel].space == "input":
        return x
    return model.run("encode", x=x, **model.noise_level(len(x)))["hidden"]


def decode_state(model: Model, kernel: str, state: Floats) -> Floats:
    """Turn a state (W, n) into points (W, d) in model units."""
    if model.manifest.kernels[kernel].space == "input":
        return state
    return model.run("decode", hidden=state, **model.noise_level(len(state)))["mean"]


def step_noise(model: Model, transition: Transition, rows: int, step: int) -> Floats:
    """Draw the normals that the kernel's graph takes at a step; (W, noise)."""
    return normals(transition.seed, step, (rows, model.manifest.kernels[transition.kernel].noise))


def step_cost(model: Model, transition: Transition) -> int:
    """Count the graph calls of a step; with a schedule, those of the longest step."""
    m = model.manifest
    if transition.metropolis:
        return corrections.count_metropolis_calls(m, transition.kernel)
    if transition.clamp is not None:
        return max(clamps.count_clamped_calls(m, transition.kernel, s) for s in transition.scale)
    return 1


def take_step(
    model: Model, transition: Transition, state: Floats, step: int, noise: Floats | None = None
) -> Step:
    """Yield the graph calls of one step and return the position at step + 1.

    Args:
        state: the state at `step`; (W, n).
        noise: that of `step_noise`, if it was drawn already.
    """
    if transition.metropolis:
        return corrections.metropolis_step(model, transition, state, step)
    if transition.clamp is not None:
        return clamps.clamped_step(model, transition, transition.clamp, state, step)
    return _plain_step(model, transition, state, step, noise)


def _plain_step(
    model: Model, transition: Transition, state: Floats, step: int, noise: Floats | None
) -> Step:
    kernel = model.manifest.kernels[transition.kernel]
    if noise is None:
        noise = step_noise(model, transition, len(state), step)
    scale = np.full((len(state), 1), transition.scale_at(step), dtype=np.float32)
    outputs = yield Call(kernel.graph, {"state": state, "noise": noise, "scale": scale})
    following, mean = outputs["next"], outputs["mean"]
    if transition.floor > 0:
        following = following + transition.floor * normals(
            transition.seed, step, following.shape, stream=FLOOR_NOISE
        )
        check_bounds(step + 1, following)
    noisy = following if kernel.space == "input" else mean
    return Position(step + 1, following, mean, noisy)


def advance(model: Model, transition: Transition, state: Floats, step: int) -> Position:
    """Take one step from the state at `step`, in process."""
    calls = take_step(model, transition, state, step)
    return run_calls(model, calls, lambda outputs: check_bounds(step + 1, *outputs.values()))


def positions(
    model: Model, transition: Transition, state: Floats, steps: int, first: int = 0
) -> Iterator[Position]:
    """Yield the chain's next `steps` positions, from the state at step `first`."""
    for step in range(first, first + steps):
        position = advance(model, transition, state, step)
        state = position.state
        yield position


def _choose_kernel(model: Model, name: str | None, has_clamp: bool, metropolis: bool) -> str:
    m = model.manifest
    if name is not None:
        if name not in m.kernels:
            raise InputError(
                f"{m.reference} has no kernel {name[:50]!r}; it has {', '.join(m.kernels)}."
            )
        return name
    usable: Sequence[str] = tuple(m.kernels)
    if has_clamp:
        usable = clamps.KERNELS
    elif metropolis:
        usable = corrections.KERNELS
    if m.default_kernel in usable:
        return m.default_kernel
    return next((k for k in usable if k in m.kernels), m.default_kernel)


def _check_kernel(
    model: Model, kernel: str, has_clamp: bool, metropolis: bool, floor: float
) -> None:
    """Refuse a kernel that cannot condition on known columns or be corrected, as asked for."""
    m = model.manifest
    if has_clamp and kernel not in clamps.KERNELS:
        names = " and ".join(clamps.KERNELS)
        raise InputError(f"`clamp` works with the kernels {names}, not {kernel}.")
    if not metropolis:
        return
    if has_clamp:
        raise InputError("`metropolis` cannot be combined with `clamp`.")
    if floor:
        raise InputError("`metropolis` cannot be combined with `floor`.")
    if kernel not in corrections.KERNELS:
        names = " and ".join(corrections.KERNELS)
        raise InputError(f"`metropolis` works with the kernels {names}, not {kernel}.")
    if m.covariance_scale != "absolute":
        raise InputError(
            f"`metropolis` needs the score, and the scale of the score of {m.reference} is unknown."
        )
    if kernel == "moment" and m.input_dims > FULL_JACOBIAN_DIMS:
        raise InputError(
            f"`metropolis` with kernel moment works for up to {FULL_JACOBIAN_DIMS} columns; "
            f"{m.reference} has {m.input_dims}. Use kernel walkjump."
        )


def _check_scale(model: Model, kernel: str, scale: Sequence[float], has_clamp: bool) -> None:
    """Refuse scales that are not positive, or start a step at an untrained noise level."""
    m = model.manifest
    if not scale or not all(0 < s <= FARTHEST for s in scale):
        raise InputError("`scale` must be a positive number, or a list of positive numbers.")
    if not has_clamp or kernel != "gibbs" or m.noise_levels is None:
        return
    low, high = (level / m.sigma for level in m.noise_levels)
    if not all(low * (1 - 1e-6) <= s <= high * (1 + 1e-6) for s in scale):
        raise InputError(
            f"With `clamp`, `scale` must be from {low:g} to {high:g} for {m.reference}: a step "
            "begins at the noise level scale × σ, which must be one that the model was trained for."
        )
