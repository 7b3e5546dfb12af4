"""Steps of `walkjump` and `moment` as Metropolis proposals, to correct the bias of long steps.

The target is the smoothed density p, the law of X + σε, whose score is (r(x) - x)/α. A proposal x'
from q(x' | x) is accepted with probability min(1, ratio); otherwise the walker stays at x:

    log ratio = log p(x') - log p(x) + log q(x | x') - log q(x' | x)
    log p(x') - log p(x) ≈ ½ (s(x) + s(x'))·(x' - x)      the trapezoid rule on the score s

The rule is exact if the score is linear, so on Gaussian data the chain keeps p exactly.

    walkjump   q(x' | x) = N(x + s (r(x) - x), 2sσ² I)
    moment     q(x' | x) = N(r(x), s² α A(x)),  A₊ plus a floor δ‖A‖, as a density needs full rank
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.artefact import Manifest
from localmoments.chain_state import Position, Step, Transition, check_bounds
from localmoments.gaussian import Gaussian
from localmoments.graph_calls import Call, Calls
from localmoments.noise import ACCEPT_NOISE, normals, uniforms
from localmoments.spectrum import count_matrix_calls, find_matrices

if TYPE_CHECKING:
    from localmoments.model import Model

KERNELS = ("walkjump", "moment")
FLOOR = 1e-3  # δ


@dataclass(frozen=True)
class SphericalGaussian:
    """N(mean, variance I), without a matrix."""

    mean: Doubles  # (W, d)
    variance: float

    def draw(self, ε: Doubles) -> Doubles:
        """Return mean + √variance ε; (W, d)."""
        return self.mean + math.sqrt(self.variance) * ε

    def log_density(self, x: Doubles) -> Doubles:
        """Return the log density up to a constant; (W,)."""
        squares: Doubles = np.square(x - self.mean).sum(axis=1)
        return np.asarray(squares / (-2 * self.variance), np.float64)


@dataclass(frozen=True)
class ProposalPoint:
    """A point, r there, and the law of the proposal from there."""

    x: Floats  # (W, d)
    r: Doubles  # (W, d)
    proposal: Gaussian | SphericalGaussian


def metropolis_step(model: Model, transition: Transition, state: Floats, step: int) -> Step:
    """Propose a step, and accept it or stay."""
    here = yield from _find_proposal(model, transition, state, step)
    noise = normals(transition.seed, step, state.shape).astype(np.float64)
    proposed = here.proposal.draw(noise).astype(np.float32)
    check_bounds(step + 1, proposed)
    there = yield from _find_proposal(model, transition, proposed, step)
    uniform = uniforms(transition.seed, step, len(state), ACCEPT_NOISE)
    accepts = np.log(uniform) < _log_ratio(here, there, model.manifest.alpha)  # (W,)
    chosen = accepts[:, None]
    x = np.where(chosen, proposed, state)
    mean = np.where(chosen, there.r, here.r).astype(np.float32)
    return Position(step + 1, x, mean, x, accepted=int(accepts.sum()))


def count_metropolis_calls(manifest: Manifest, kernel: str) -> int:
    """Return the number of graph calls of a step: those of both points."""
    return 2 * (count_matrix_calls(manifest.input_dims) if kernel == "moment" else 1)


def _find_proposal(
    model: Model, transition: Transition, x: Floats, step: int
) -> Calls[ProposalPoint]:
    scale, σ = transition.scale_at(step), model.manifest.sigma
    if transition.kernel == "walkjump":
        out = yield Call("reconstruct", {"x": x, **model.noise_level(len(x))})
        r = out["mean"].astype(np.float64)
        return ProposalPoint(x, r, SphericalGaussian(x + scale * (r - x), 2 * scale * σ**2))
    r, A = yield from find_matrices(x, model.noise_level(len(x), σ))
    P = Gaussian.of_products(r, A, scale * σ).covariance
    # The floor follows the size of P, so the acceptance rate does not depend on the scale's units.
    size = np.linalg.norm(P, axis=(1, 2), keepdims=True)
    return ProposalPoint(x, r, Gaussian(r, P + FLOOR * size * np.eye(x.shape[1])))


def _log_ratio(here: ProposalPoint, there: ProposalPoint, alpha: float) -> Doubles:
    """Return the log of the acceptance ratio; (W,)."""
    x, x_new = here.x.astype(np.float64), there.x.astype(np.float64)
    scores = ((here.r - x) + (there.r - x_new)) / alpha
    rise: Doubles = (scores * (x_new - x)).sum(axis=1) / 2
    return rise + there.proposal.log_density(x) - here.proposal.log_density(x_new)
