"""A step of a chain if some columns are known: block Gibbs on (X, X̃), given what is known.

    x̃ = x + tε, on all columns
    X ~ N(r(x̃), P) given the known columns, P = t²A₊(x̃)

On Gaussian data the local posterior is a Gaussian, and the step keeps N(m, C) given the known
columns exactly, for any t. On other data this holds only as far as the data are straight within t.
So t starts high enough to reach other modes and comes down over the levels that the model was
trained at: given y = X + tε, draw X, then the point X + (t/2)ε' given X and y (gaussian.bridge),
and so on down to the lowest level, where the Gaussian is accurate.

Up to FULL_JACOBIAN_DIMS columns A is a matrix; beyond, localmoments.matheron uses its products.

Paths down the levels can lead to different modes, and the known values are likelier in some of them
than in others. A Gaussian around one mode knows nothing of the others. So for few columns a path is
weighted as a whole. With q the model's Gaussians down the levels and g the same given the known
columns,

    w(path) = Π q(yᵢ₋₁ | yᵢ) / g(yᵢ₋₁ | yᵢ)

is the path's evidence. The old path, drawn upward from x, and the new one share the point at the
highest level. The new one is accepted with probability min(1, w(new) / w(old)). On Gaussian data
all paths from the same point have the same evidence, and every path is accepted.

The ridge τ = RIDGE·t allows for an error of r. P is nearly singular across the data's manifold, and
without a ridge P⁻¹ would turn a small error of r there into a large move along the manifold. The
known columns get the variance that P's smallest eigenvalue lacks, max(τ² - λ, 0). A well-
conditioned P gets none, so the step stays exact there. Columns that are known exactly are set to
their values at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING

import numpy as np

from localmoments import matheron
from localmoments.arrays import Doubles, Floats
from localmoments.artefact import Manifest
from localmoments.chain_state import Clamp, Position, Step, Transition, check_bounds
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.gaussian import Gaussian, Measurement, bridge, draw_given
from localmoments.graph_calls import Calls
from localmoments.noise import ACCEPT_NOISE, FLOOR_NOISE, normals, uniforms
from localmoments.spectrum import count_matrix_calls, find_matrices

if TYPE_CHECKING:
    from localmoments.model import Model

KERNELS = ("gibbs", "moment")  # that can condition
WEIGHTED_DIMS = 16  # up to this many columns paths are weighted: beyond, the algebra is too slow
RIDGE = 0.03  # τ/t, if A is a matrix


def noise_levels(manifest: Manifest, scale: float) -> tuple[float, ...]:
    """Return the levels of a gibbs step: scale·σ, halved down to the lowest trained level.

    A model that does not take its noise level as an input has only one.
    """
    levels = [scale * manifest.sigma]
    if manifest.noise_levels is None:
        return tuple(levels)
    lowest = manifest.noise_levels[0]
    while levels[-1] / 2 >= lowest:
        levels.append(levels[-1] / 2)
    return (*levels, lowest) if levels[-1] > 1.1 * lowest else tuple(levels)


def default_scale(manifest: Manifest, kernel: str) -> float:
    """Return the default scale with a clamp: the highest trained level, which reaches other modes.

    Kernels other than gibbs, and models with one noise level, keep the kernel's own.
    """
    if kernel != "gibbs" or manifest.noise_levels is None:
        return manifest.kernels[kernel].scale
    return manifest.noise_levels[1] / manifest.sigma


def clamped_step(
    model: Model, transition: Transition, clamp: Clamp, state: Floats, step: int
) -> Step:
    """Take a step from the state (W, d) at `step`, given the known columns."""
    conditional = ConditionalStep(model, transition, clamp, state, step)
    scale, σ = transition.scale_at(step), model.manifest.sigma
    if transition.kernel == "moment":
        return conditional.arrive(*(yield from conditional.draw(state, σ, scale * σ)))
    levels = noise_levels(model.manifest, scale)
    if state.shape[1] <= WEIGHTED_DIMS:
        return (yield from _weighted_step(conditional, levels, state))
    y = conditional.round(state + levels[0] * conditional.next_noise())
    for t, s in pairwise(levels):
        x, _ = yield from conditional.draw(y, t, t)
        # The Brownian bridge between X and y = X + tε, at the lower level s: see gaussian.bridge.
        q = (s / t) ** 2
        noise = s * np.sqrt(1 - q) * conditional.next_noise()
        y = conditional.round(conditional.hold(x) * (1 - q) + q * y + noise)
    return conditional.arrive(*(yield from conditional.draw(y, levels[-1], levels[-1])))


def count_clamped_calls(manifest: Manifest, kernel: str, scale: float) -> int:
    """Return the number of graph calls of a step."""
    d = manifest.input_dims
    each = matheron.CALLS if d > FULL_JACOBIAN_DIMS else count_matrix_calls(d)
    levels = 1 if kernel == "moment" else len(noise_levels(manifest, scale))
    is_weighted = kernel == "gibbs" and d <= WEIGHTED_DIMS
    # A weighted step looks at two paths, which share the point at the highest level.
    return each * (2 * levels - 1 if is_weighted else levels)


class ConditionalStep:
    """The known columns, the noise and the graph calls of one step."""

    def __init__(
        self, model: Model, transition: Transition, clamp: Clamp, state: Floats, step: int
    ) -> None:
        self._model, self._transition, self._clamp, self._step = model, transition, clamp, step
        self._shape = state.shape
        self._draws = self._draw_noise()
        self._mask = np.broadcast_to(clamp.mask, state.shape)
        self._values = np.where(self._mask, clamp.values.astype(np.float64), 0.0)
        self._variance = np.where(self._mask, np.square(clamp.std.astype(np.float64)), 0.0)

    def next_noise(self) -> Doubles:
        """Return the next standard normals of this step; (W, d)."""
        return next(self._draws)

    def _draw_noise(self) -> Iterator[Doubles]:
        # Each draw has a counter of its own, above all steps that a chain can have. So a row's
        # noise does not depend on the other rows, nor on the draws of another step.
        for part in count():
            counter = self._step + (part << 40)
            yield normals(self._transition.seed, counter, self._shape).astype(np.float64)

    def draw_uniform(self) -> Doubles:
        """Return one uniform number per walker; (W,)."""
        return uniforms(self._transition.seed, self._step, self._shape[0], ACCEPT_NOISE)

    def round(self, y: Doubles) -> Floats:
        """Convert to float32, which graphs take, and check the bounds."""
        y32: Floats = y.astype(np.float32)
        check_bounds(self._step + 1, y32)
        return y32

    def measure(self, local: Gaussian, t: float) -> Measurement:
        """Return the known columns, with the ridge of level t if `local` is narrower than it."""
        columns = Measurement.of_columns(self._mask, self._values, np.sqrt(self._variance))
        return columns.with_error(np.maximum((RIDGE * t) ** 2 - local.least_variance, 0.0))

    def find_local(self, y: Floats, sigma: float, t: float) -> Calls[Gaussian]:
        """Return N(r(y), t²A₊(y)) of the model at noise level sigma."""
        r, A = yield from find_matrices(y, self._model.noise_level(len(y), sigma))
        return Gaussian.of_products(r, A, t)

    def draw(self, y: Floats, sigma: float, t: float) -> Calls[tuple[Doubles, Doubles]]:
        """Draw X from N(r(y), t²A₊(y)) given what is known.

        Returns the draw and its conditional mean; both (W, d).
        """
        if self._shape[1] > FULL_JACOBIAN_DIMS:
            at = matheron.LocalProducts(self._model, y, sigma, t)
            mask, noises = self._mask.astype(np.float64), (self.next_noise(), self.next_noise())
            return (yield from matheron.draw_given(at, mask, self._values, self._variance, *noises))
        local = yield from self.find_local(y, sigma, t)
        return draw_given(local, self.measure(local, t), self.next_noise(), self.next_noise())

    def hold(self, x: Doubles) -> Doubles:
        """Set the exactly known columns of x (W, d) to their values."""
        return np.where(self._mask & (self._variance == 0), self._values, x)

    def arrive(self, x: Doubles, mean: Doubles) -> Position:
        """Add the floor's noise, hold the exactly known columns, and return the position."""
        state = x.astype(np.float32)
        floor = self._transition.floor
        if floor > 0:
            noise = normals(self._transition.seed, self._step, state.shape, stream=FLOOR_NOISE)
            state = state + floor * noise
        state, emitted = self._clamp.hold(state), self._clamp.hold(mean.astype(np.float32))
        check_bounds(self._step + 1, state, emitted)
        return Position(self._step + 1, state, emitted, state)


@dataclass(frozen=True)
class PathLevel:
    """One level of a path: the local Gaussian, and what is known."""

    y: Doubles  # (W, d)
    t: float
    s: float  # the next level, 0 at the last
    local: Gaussian
    known: Measurement

    @property
    def posterior(self) -> Gaussian:
        """The local Gaussian given what is known."""
        return self.local.given(self.known)

    def draw(self, ε: Doubles) -> Doubles:
        """Draw the next point of a new path; (W, d)."""
        posterior = self.posterior
        return (bridge(posterior, self.y, self.t, self.s) if self.s > 0 else posterior).draw(ε)

    def log_weight(self, z: Floats) -> Doubles:
        """Return log q - log g of the step to z; (W,)."""
        if self.s == 0:  # the last step is weighted by the evidence of the known columns
            return self.local.log_evidence(self.known)
        q = bridge(self.local, self.y, self.t, self.s)
        g = bridge(self.posterior, self.y, self.t, self.s)
        return q.log_density(z.astype(np.float64)) - g.log_density(z.astype(np.float64))


def _weighted_step(
    conditional: ConditionalStep, levels: tuple[float, ...], x: Floats
) -> Step:  # fmt: skip
    """Draw a new path down the levels, and accept it or keep the old one."""
    following = (*levels[1:], 0.0)

    def find_level(y: Floats, i: int) -> Calls[PathLevel]:
        local = yield from conditional.find_local(y, levels[i], levels[i])
        known = conditional.measure(local, levels[i])
        return PathLevel(y.astype(np.float64), levels[i], following[i], local, known)

    old = _climb(conditional, levels, x)
    top = yield from find_level(old[0], 0)
    ends, weights = [], []
    for is_new in (False, True):
        level, y, weight = top, old[0], np.zeros(len(x))
        for i in range(len(levels)):
            if i > 0:
                level = yield from find_level(y, i)
            y = conditional.round(level.draw(conditional.next_noise())) if is_new else old[i + 1]
            weight = weight + level.log_weight(y)
        ends.append((y, level.posterior.mean))
        weights.append(weight)
    accepts = np.log(conditional.draw_uniform()) < weights[1] - weights[0]  # (W,)
    (_, old_mean), (x_new, new_mean) = ends
    chosen = accepts[:, None]
    return conditional.arrive(np.where(chosen, x_new, x), np.where(chosen, new_mean, old_mean))


def _climb(conditional: ConditionalStep, levels: tuple[float, ...], x: Floats) -> list[Floats]:
    """Draw a path up from x; the highest level comes first and x last."""
    path, below = [x], 0.0
    for t in reversed(levels):
        # Independent increments: the point at level t is x plus noise of variance t² in all.
        noise = np.sqrt(t**2 - below**2) * conditional.next_noise()
        path.append(conditional.round(path[-1] + noise))
        below = t
    return path[::-1]
