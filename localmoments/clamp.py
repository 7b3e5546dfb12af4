"""A step of a chain some of whose columns are known: block Gibbs on (X, X̃), given what is known.

    x̃ = x + tε, on all columns
    X ~ N(r(x̃), P) given the known columns, P = t²A₊(x̃)

On Gaussian data the local posterior is a Gaussian, and the step keeps N(m, C) given the known
columns exactly, for any t. Elsewhere it is one only as far as the data are straight within t. So
t starts high enough to reach other modes and comes down over the levels that the model was trained
on: given y = X + tε, draw X, then the point X + (t/2)ε' given X and y (conditioning.bridge), and so
on down to the lowest level, where the Gaussian is accurate.

Up to FULL_JACOBIAN_DIMS columns A is a matrix; beyond, localmoments.matheron uses its products.

Paths down the levels can lead to different modes, and the known values are likelier in some of them
than in others. A Gaussian around one mode knows nothing of the others, so for few columns a path is
weighed as a whole. With q the model's Gaussians down the levels and g the same given the known
columns,

    w(path) = Π q(yᵢ₋₁ | yᵢ) / g(yᵢ₋₁ | yᵢ)

is the path's evidence. The old path, drawn upward from x, and the new one share the point at the
highest level. The new one is accepted with probability min(1, w(new) / w(old)). On Gaussian data
all paths from the same point have the same evidence, and every path is accepted.

The ridge τ = RIDGE·t is the error of r that is allowed for. P is nearly singular across the data's
manifold, and without a ridge P⁻¹ would turn a small error of r there into a large move along the
manifold. The known columns get the variance that P's smallest eigenvalue lacks, max(τ² - λ, 0): a
well-conditioned P gets none, so the step stays exact there. Columns that are known exactly are set
to their values at the end.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from localmoments import matheron
from localmoments.arrays import Doubles, Floats
from localmoments.artefact import Manifest
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.gaussian import Gaussian, Measurement, bridge, draw_given
from localmoments.jacobian import matrix_calls, mean_and_matrix
from localmoments.model import Arrays, Model
from localmoments.noise import ACCEPT_NOISE, FLOOR_NOISE, normals, uniforms
from localmoments.transition import Call, Clamp, Position, Step, Transition, check_bounds

KERNELS = ("gibbs", "moment")  # that know how to condition
WEIGHED_DIMS = 16  # columns up to which paths are weighed: beyond, the algebra takes too long
RIDGE = 0.03  # τ/t, where A is a matrix


def noise_levels(manifest: Manifest, scale: float) -> tuple[float, ...]:
    """Of a gibbs step: halve from scale·σ to the lowest level that the model was trained on.

    A model that is not told its noise level has only one.
    """
    levels = [scale * manifest.sigma]
    if manifest.noise_levels is None:
        return tuple(levels)
    lowest = manifest.noise_levels[0]
    while levels[-1] / 2 >= lowest:
        levels.append(levels[-1] / 2)
    return (*levels, lowest) if levels[-1] > 1.1 * lowest else tuple(levels)


def default_scale(manifest: Manifest, kernel: str) -> float:
    """Of a clamped chain: the highest trained level, from which other modes are in reach."""
    if kernel != "gibbs" or manifest.noise_levels is None:
        return manifest.kernels[kernel].scale
    return manifest.noise_levels[1] / manifest.sigma


def clamped_step(model: Model, walk: Transition, clamp: Clamp, state: Floats, step: int) -> Step:
    """The position at step + 1, given the known columns."""
    known = Known(model, walk, clamp, state, step)
    scale, σ = walk.scale_at(step), model.manifest.sigma
    if walk.kernel == "moment":
        return known.arrive(*(yield from known.draw(state, σ, scale * σ)))
    levels = noise_levels(model.manifest, scale)
    if state.shape[1] <= WEIGHED_DIMS:
        return (yield from _weighed_step(known, levels, state))
    y = known.round(state + levels[0] * known.noise())
    for t, s in pairwise(levels):
        x, _ = yield from known.draw(y, t, t)
        q = (s / t) ** 2
        y = known.round(known.hold(x) * (1 - q) + q * y + s * np.sqrt(1 - q) * known.noise())
    return known.arrive(*(yield from known.draw(y, levels[-1], levels[-1])))


def clamped_calls(manifest: Manifest, kernel: str, scale: float) -> int:
    """Graph calls of a step."""
    d = manifest.input_dims
    each = matheron.CALLS if d > FULL_JACOBIAN_DIMS else matrix_calls(d)
    levels = 1 if kernel == "moment" else len(noise_levels(manifest, scale))
    is_weighed = kernel == "gibbs" and d <= WEIGHED_DIMS
    return each * (2 * levels - 1 if is_weighed else levels)


class Known:
    """What is known, and the noise and the graph calls of one step."""

    def __init__(
        self, model: Model, walk: Transition, clamp: Clamp, state: Floats, step: int
    ) -> None:
        self._model, self._walk, self._clamp, self._step = model, walk, clamp, step
        self._shape = state.shape
        self._draws = self._noises()
        self._mask = np.broadcast_to(clamp.mask, state.shape)
        self._values = np.where(self._mask, clamp.values.astype(np.float64), 0.0)
        self._variance = np.where(self._mask, np.square(clamp.std.astype(np.float64)), 0.0)

    def noise(self) -> Doubles:
        """The next standard normals; (W, d)."""
        return next(self._draws)

    def _noises(self) -> Iterator[Doubles]:
        """Each from a counter of its own: a row's noise does not depend on other rows."""
        for part in count():
            place = self._step + (part << 40)
            yield normals(self._walk.seed, place, self._shape).astype(np.float64)

    def uniform(self) -> Doubles:
        return uniforms(self._walk.seed, self._step, self._shape[0], ACCEPT_NOISE)

    def round(self, y: Doubles) -> Floats:
        """To what a graph takes."""
        y32: Floats = y.astype(np.float32)
        check_bounds(self._step + 1, y32)
        return y32

    def seen(self, local: Gaussian, t: float) -> Measurement:
        """With the ridge of level t, where the local Gaussian is narrower than it."""
        columns = Measurement.of_columns(self._mask, self._values, np.sqrt(self._variance))
        return columns.with_error(np.maximum((RIDGE * t) ** 2 - local.least_variance, 0.0))

    def look(self, y: Floats, sigma: float, t: float) -> Generator[Call, Arrays, Gaussian]:
        """N(r(y), t²A₊(y)), of a model that is told sigma."""
        r, A = yield from mean_and_matrix(self._model, y, sigma)
        return Gaussian.of_products(r, A, t)

    def draw(
        self, y: Floats, sigma: float, t: float
    ) -> Generator[Call, Arrays, tuple[Doubles, Doubles]]:
        """X from N(r(y), t²A₊(y)) given what is known, and its conditional mean; both (W, d)."""
        if self._shape[1] > FULL_JACOBIAN_DIMS:
            at = matheron.Local(self._model, y, sigma, t)
            return (yield from matheron.draw_given(
                at, self._mask.astype(np.float64), self._values, self._variance, self.noise(),
                self.noise(),
            ))  # fmt: skip
        local = yield from self.look(y, sigma, t)
        return draw_given(local, self.seen(local, t), self.noise(), self.noise())

    def hold(self, x: Doubles) -> Doubles:
        """With the exactly known columns at their values."""
        return np.where(self._mask & (self._variance == 0), self._values, x)

    def arrive(self, x: Doubles, mean: Doubles) -> Position:
        """The position: a floor's noise is added, and exactly known columns have their values."""
        state = x.astype(np.float32)
        if self._walk.floor > 0:
            noise = normals(self._walk.seed, self._step, state.shape, stream=FLOOR_NOISE)
            state = state + self._walk.floor * noise
        state, emitted = self._clamp.hold(state), self._clamp.hold(mean.astype(np.float32))
        check_bounds(self._step + 1, state, emitted)
        return Position(self._step + 1, state, emitted, state)


@dataclass(frozen=True)
class Stage:
    """One level of a path: the local Gaussian as it is, and given what is known."""

    y: Doubles  # (W, d)
    t: float
    s: float  # the next level, 0 at the last
    free: Gaussian
    seen: Measurement

    @property
    def given(self) -> Gaussian:
        return self.free.given(self.seen)

    def draw(self, ε: Doubles) -> Doubles:
        """The next point of a new path; (W, d)."""
        given = self.given
        return (bridge(given, self.y, self.t, self.s) if self.s > 0 else given).draw(ε)

    def log_weight(self, z: Floats) -> Doubles:
        """log q - log g of the step to z; (W,). At the last level it is the evidence."""
        if self.s == 0:
            return self.free.log_evidence(self.seen)
        free = bridge(self.free, self.y, self.t, self.s)
        given = bridge(self.given, self.y, self.t, self.s)
        return free.log_density(z.astype(np.float64)) - given.log_density(z.astype(np.float64))


def _weighed_step(known: Known, levels: tuple[float, ...], x: Floats) -> Step:
    """A new path down the levels, or the old one."""
    following = (*levels[1:], 0.0)

    def look(y: Floats, i: int) -> Generator[Call, Arrays, Stage]:
        free = yield from known.look(y, levels[i], levels[i])
        seen = known.seen(free, levels[i])
        return Stage(y.astype(np.float64), levels[i], following[i], free, seen)

    old = _climb(known, levels, x)
    top = yield from look(old[0], 0)
    ends, weights = [], []
    for is_new in (False, True):
        stage, y, weight = top, old[0], np.zeros(len(x))
        for i in range(len(levels)):
            if i > 0:
                stage = yield from look(y, i)
            y = known.round(stage.draw(known.noise())) if is_new else old[i + 1]
            weight = weight + stage.log_weight(y)
        ends.append((y, stage.given.mean))
        weights.append(weight)
    accepts = np.log(known.uniform()) < weights[1] - weights[0]  # (W,)
    (_, before), (x_new, after) = ends
    chosen = accepts[:, None]
    return known.arrive(np.where(chosen, x_new, x), np.where(chosen, after, before))


def _climb(known: Known, levels: tuple[float, ...], x: Floats) -> list[Floats]:
    """A path up from x, the highest level first and x last."""
    path, below = [x], 0.0
    for t in reversed(levels):
        path.append(known.round(path[-1] + np.sqrt(t**2 - below**2) * known.noise()))
        below = t
    return path[::-1]
