"""Steps of `walkjump` and `moment` as Metropolis proposals, to correct the bias of long steps.

The target is the smoothed density p, the law of X + σε, whose score is (r(x) - x)/α. A proposal x'
from q(x' | x) is accepted with probability min(1, ratio), and otherwise the walker stays at x:

    log ratio = log p(x') - log p(x) + log q(x | x') - log q(x' | x)
    log p(x') - log p(x) ≈ ½ (s(x) + s(x'))·(x' - x)      the trapezoid rule on the score s

The rule is exact where the score is linear, so on Gaussian data the chain keeps p exactly.

    walkjump   q(x' | x) = N(x + s (r(x) - x), 2sσ² I)
    moment     q(x' | x) = N(r(x), s² α A(x)),  A₊ plus a floor δ‖A‖, as a density needs full rank
"""

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.artefact import Manifest
from localmoments.gaussian import Gaussian
from localmoments.jacobian import matrix_calls, mean_and_matrix
from localmoments.model import Arrays, Model
from localmoments.noise import ACCEPT_NOISE, normals, uniforms
from localmoments.transition import Call, Position, Step, Transition, check_bounds

KERNELS = ("walkjump", "moment")
FLOOR = 1e-3  # δ


@dataclass(frozen=True)
class Spherical:
    """N(mean, variance I), without any matrix."""

    mean: Doubles  # (W, d)
    variance: float

    def draw(self, ε: Doubles) -> Doubles:
        return self.mean + math.sqrt(self.variance) * ε

    def log_density(self, x: Doubles) -> Doubles:
        """Up to a constant; (W,)."""
        squares: Doubles = np.square(x - self.mean).sum(axis=1)
        return np.asarray(squares / (-2 * self.variance), np.float64)


@dataclass(frozen=True)
class Place:
    """A point, r there, and the proposal that leaves it."""

    x: Floats  # (W, d)
    r: Doubles  # (W, d)
    proposal: Gaussian | Spherical


def metropolis_step(model: Model, walk: Transition, state: Floats, step: int) -> Step:
    """Propose, and accept or stay."""
    here = yield from _look(model, walk, state, step)
    noise = normals(walk.seed, step, state.shape).astype(np.float64)
    proposed = here.proposal.draw(noise).astype(np.float32)
    check_bounds(step + 1, proposed)
    there = yield from _look(model, walk, proposed, step)
    uniform = uniforms(walk.seed, step, len(state), ACCEPT_NOISE)
    accepts = np.log(uniform) < _log_ratio(here, there, model.manifest.alpha)  # (W,)
    chosen = accepts[:, None]
    x = np.where(chosen, proposed, state)
    mean = np.where(chosen, there.r, here.r).astype(np.float32)
    return Position(step + 1, x, mean, x, accepted=int(accepts.sum()))


def metropolis_calls(manifest: Manifest, kernel: str) -> int:
    """Graph calls of a step."""
    return 2 * (matrix_calls(manifest.input_dims) if kernel == "moment" else 1)


def _look(
    model: Model, walk: Transition, x: Floats, step: int
) -> Generator[Call, Arrays, Place]:  # fmt: skip
    scale, σ = walk.scale_at(step), model.manifest.sigma
    if walk.kernel == "walkjump":
        out = yield Call("reconstruct", {"x": x, **model.noise_level(len(x))})
        r = out["mean"].astype(np.float64)
        return Place(x, r, Spherical(x + scale * (r - x), 2 * scale * σ**2))
    r, A = yield from mean_and_matrix(model, x, σ)
    P = Gaussian.of_products(r, A, scale * σ).covariance
    size = np.linalg.norm(P, axis=(1, 2), keepdims=True)
    return Place(x, r, Gaussian(r, P + FLOOR * size * np.eye(x.shape[1])))


def _log_ratio(here: Place, there: Place, alpha: float) -> Doubles:
    """(W,)"""
    x, x_new = here.x.astype(np.float64), there.x.astype(np.float64)
    scores = ((here.r - x) + (there.r - x_new)) / alpha
    rise: Doubles = (scores * (x_new - x)).sum(axis=1) / 2
    return rise + there.proposal.log_density(x) - here.proposal.log_density(x_new)
