"""Chain kernels as graphs: step(state, noise, scale) -> (next, mean).

| kernel   | step                                                         | from                |
|----------|--------------------------------------------------------------|---------------------|
| hidden   | h' = f(g(h)) + s J_f J_fᵀ ε at x = g(h); mean g(h')          | paper, section 2.1  |
| input    | x' = r(x) + s J_fᵀ J_f ε; mean r(x)                          | paper, section 2.1  |
| moment   | x' ~ N(r(x), s² α A); mean r(x)                              | paper, eq. chain    |
| gibbs    | x̃ = x + sσ ε₁, x' ~ N(r(x̃), s²σ² A(x̃)); mean r(x' + aε₃)      | finite-step moments |
| walkjump | y' = y + s (r(y) - y) + √(2sσ²) ε; mean r(y')                | Saremi, Hyvärinen   |

A kernel is all that the service needs to walk a chain: adding one here, and to KERNELS, adds it
to every new artefact. The noisy emission of an input-space kernel is its next state.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.autoencoder import AutoEncoder
from trainer.covariance_roots import Root


class Kernel(nn.Module):
    """A transition over rows: state (B, n), noise (B, q), scale (B, 1)."""

    space: ClassVar[str] = "input"
    default_scale: ClassVar[float | None] = 1.0  # None: calibrated on the model

    def __init__(self, ae: AutoEncoder, sigma: float, root: Root) -> None:
        super().__init__()
        self.ae = ae
        self.sigma = sigma  # α = σ²
        self.root = root

    @property
    def noise(self) -> int:
        """How many standard normals a row and step takes."""
        return self.ae.architecture.dims

    def level(self, scale: Tensor) -> Tensor | None:
        """The noise level that a conditioned model is told: its own, whatever the scale."""
        conditioned = self.ae.architecture.conditioned
        return torch.ones_like(scale) * self.sigma if conditioned else None

    @abstractmethod
    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """(next, mean)"""


class Hidden(Kernel):
    """h' = f(g(h)) + s J_f J_fᵀ ε, the paper's chain in the space of representations."""

    space = "hidden"
    default_scale = None

    @property
    def noise(self) -> int:
        return self.ae.architecture.hidden[-1]

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        sigma = self.level(scale)
        f = self.ae.linearise_encoder(self.ae.decode(state, sigma), sigma)
        h = f.value + scale * f.jvp(f.vjp(noise))  # (B, m)
        return h, self.ae.decode(h, sigma)


class Input(Kernel):
    """x' = r(x) + s J_fᵀ J_f ε, the same in the space of inputs."""

    default_scale = None

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        sigma = self.level(scale)
        f = self.ae.linearise_encoder(state, sigma)
        r = self.ae.decode(f.value, sigma)
        return r + scale * f.vjp(f.jvp(noise)), r


class Moment(Kernel):
    """x' ~ N(r(x), s² α A): the local mean and covariance as they are.

    On Gaussian data the stationary variance is s² C / (1 + a), a = C / (C + α); near the data's
    manifold a is close to 1, so s = √2 is the scale that keeps the data's spread there.
    """

    default_scale = 2**0.5

    @property
    def noise(self) -> int:
        return self.root.noise

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        at = self.ae.linearise(state, self.level(scale))
        return at.value + scale * self.sigma * self.root(at, state, noise), at.value


class Gibbs(Kernel):
    """x̃ = x + sσ ε₁, then x' ~ N(r(x̃), s²σ² A(x̃)): corrupt, and draw from the local posterior.

    A conditioned model is told the level t = sσ, so a schedule of scales is a schedule of noise.

    The mean is that of the draw, r(x' + aε₃), not of x̃: it smooths the draw and seldom blurs it.
    A model with one noise level gets half of it, a = t/2. A conditioned model gets a = t/4 and is
    told 5t/8: more than there is, because x' has an error of its own, but not all of t. Told t, it
    answered one row in a thousand with a black or white image (docs/experiments.md).

    The posterior is a Gaussian only as far as the data are straight within σ. With `halvings` the
    way back goes over levels t = sσ, sσ/2, sσ/4, ...: given y = X + tε, the point X + (t/2)ε' has

        mean y + ¾(r(y) - y)        covariance ¾(t/2)² + (¾t)² A(y)

    and a Gaussian there is a far smaller claim. The last level is left by the draw above.
    """

    def __init__(
        self, ae: AutoEncoder, sigma: float, root: Root, halvings: int = 0, lowest: float = 0.0
    ) -> None:
        super().__init__(ae, sigma, root)
        self.halvings = halvings
        self.lowest = lowest  # the lowest level that a conditioned model was trained for

    @property
    def noise(self) -> int:
        d = self.ae.architecture.dims
        return 2 * d + self.root.noise + self.halvings * (d + self.root.noise)

    def level(self, scale: Tensor) -> Tensor | None:
        return scale * self.sigma if self.ae.architecture.conditioned else None

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        d, n = self.ae.architecture.dims, self.root.noise
        ε1, *between, ε2, ε3 = noise.split([d, *[n, d] * self.halvings, n, d], dim=1)
        y = state + scale * self.sigma * ε1
        for along, around in zip(between[::2], between[1::2], strict=True):
            at, t = self.ae.linearise(y, self.level(scale)), scale * self.sigma
            spread = 0.75 * t * self.root(at, y, along) + 0.75**0.5 * t / 2 * around
            y, scale = y + 0.75 * (at.value - y) + spread, scale / 2
        at, t = self.ae.linearise(y, self.level(scale)), scale * self.sigma
        drawn = at.value + t * self.root(at, y, ε2)
        if not self.ae.architecture.conditioned:
            return drawn, self.ae(drawn + t / 2 * ε3)
        return drawn, self.ae(drawn + t / 4 * ε3, (5 / 8 * t).clamp_min(self.lowest))


class WalkJump(Kernel):
    """y' = y + s (r(y) - y) + √(2sσ²) ε: Langevin on the smoothed density, then a jump r(y')."""

    default_scale = 0.2

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        sigma = self.level(scale)
        drift = self.ae(state, sigma) - state
        y = state + scale * drift + torch.sqrt(2 * scale) * self.sigma * noise
        return y, self.ae(y, sigma)


KERNELS: dict[str, type[Kernel]] = {
    "hidden": Hidden,
    "input": Input,
    "moment": Moment,
    "gibbs": Gibbs,
    "walkjump": WalkJump,
}
