"""Transition kernels of the chains: step(state, noise, scale) -> (next, mean).

| kernel   | step                                                         | from                |
|----------|--------------------------------------------------------------|---------------------|
| hidden   | h' = f(g(h)) + s J_f J_fᵀ ε at x = g(h); mean g(h')          | paper, section 2.1  |
| input    | x' = r(x) + s J_fᵀ J_f ε; mean r(x)                          | paper, section 2.1  |
| moment   | x' ~ N(r(x), s² α A); mean r(x)                              | paper, eq. chain    |
| gibbs    | x̃ = x + sσ ε₁, x' ~ N(r(x̃), s²σ² A(x̃)); mean r(x' + aε₃)      | finite-step moments |
| walkjump | y' = y + s (r(y) - y) + √(2sσ²) ε; mean r(y')                | Saremi, Hyvärinen   |

Each kernel is exported as an ONNX graph, which is all that the service needs to run a chain. To add
one, write it here and add it to KERNELS; every new artefact then has it. The noisy emission of a
kernel in input space is its next state. The end of the module chooses the default scales.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.autoencoder import AutoEncoder
from trainer.covariance_roots import Root, make_root
from trainer.criteria import kernel_noise, spread_scale


class Kernel(nn.Module):
    """A transition kernel.

    Args:
        ae: the auto-encoder.
        sigma: the noise level σ of the chains; α = σ².
        root: draws from N(0, A).
    """

    space: ClassVar[str] = "input"  # "input" or "hidden": what the state is
    default_scale: ClassVar[float | None] = 1.0  # None: measured on the model

    def __init__(self, ae: AutoEncoder, sigma: float, root: Root) -> None:
        super().__init__()
        self.ae = ae
        self.sigma = sigma
        self.root = root

    @property
    def noise(self) -> int:
        """Standard normals that one step of one row takes."""
        return self.ae.architecture.dims

    def level(self, scale: Tensor) -> Tensor | None:
        """The noise level input of a conditioned model, (B, 1): σ at any scale."""
        conditioned = self.ae.architecture.conditioned
        return torch.ones_like(scale) * self.sigma if conditioned else None

    @abstractmethod
    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step.

        Args:
            state: (B, n), points in input or hidden space.
            noise: (B, noise), standard normals.
            scale: (B, 1), the step size s.

        Returns:
            The next state (B, n) and the mean in input space (B, d).
        """


class Hidden(Kernel):
    """h' = f(g(h)) + s J_f J_fᵀ ε: the chain of the paper in hidden space."""

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
    """x' = r(x) + s J_fᵀ J_f ε: the chain of the paper in input space."""

    default_scale = None

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        sigma = self.level(scale)
        f = self.ae.linearise_encoder(state, sigma)
        r = self.ae.decode(f.value, sigma)
        return r + scale * f.vjp(f.jvp(noise)), r


class Moment(Kernel):
    """x' ~ N(r(x), s² α A): a draw with the local mean and covariance.

    On Gaussian data the stationary variance is s² C / (1 + a) with a = C / (C + α). Along the
    data's manifold a is close to 1, so s = √2 keeps the spread of the data there.
    """

    default_scale = 2**0.5

    @property
    def noise(self) -> int:
        return self.root.noise

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        at = self.ae.linearise(state, self.level(scale))
        return at.value + scale * self.sigma * self.root(at, state, noise), at.value


class Gibbs(Kernel):
    """x̃ = x + sσ ε₁, then x' ~ N(r(x̃), s²σ² A(x̃)): corrupt, then draw from the local posterior.

    A conditioned model gets the level t = sσ: a schedule of scales is a schedule of noise levels.

    The mean is that of the draw, r(x' + aε₃), not that of x̃: it smooths the draw and seldom blurs
    it. A model of one noise level gets half of it, a = t/2. A conditioned model gets a = t/4 and
    the level 5t/8: more than a, because x' has an error of its own, but less than t. With the level
    t, one row in a thousand became a black or white image (docs/experiments.md).

    The posterior is close to a Gaussian only if the data are nearly flat within σ. With `halvings`,
    the noise is removed over the levels t = sσ, sσ/2, sσ/4, ...: given y = X + tε, the point
    X + (t/2)ε' has

        mean y + ¾(r(y) - y)        covariance ¾(t/2)² + (¾t)² A(y)

    which is much closer to a Gaussian. The draw above is then made at the last level.

    Args:
        halvings: how often the noise is halved.
        lowest: the lowest noise level that a conditioned model was trained for.
    """

    def __init__(
        self, ae: AutoEncoder, sigma: float, root: Root, halvings: int = 0, lowest: float = 0.0
    ) -> None:
        super().__init__(ae, sigma, root)
        self.halvings = halvings
        self.lowest = lowest

    @property
    def noise(self) -> int:
        d = self.ae.architecture.dims
        return 2 * d + self.root.noise + self.halvings * (d + self.root.noise)

    def level(self, scale: Tensor) -> Tensor | None:
        return scale * self.sigma if self.ae.architecture.conditioned else None

    def forward(self, state: Tensor, noise: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        d, n = self.ae.architecture.dims, self.root.noise
        ε1, *pairs, ε2, ε3 = noise.split([d, *[n, d] * self.halvings, n, d], dim=1)
        y = state + scale * self.sigma * ε1
        for ε_root, ε_white in zip(pairs[::2], pairs[1::2], strict=True):
            at, t = self.ae.linearise(y, self.level(scale)), scale * self.sigma
            # Two independent parts, whose covariances add up: (¾t)² A(y) and ¾(t/2)².
            spread = 0.75 * t * self.root(at, y, ε_root) + 0.75**0.5 * t / 2 * ε_white
            y, scale = y + 0.75 * (at.value - y) + spread, scale / 2
        at, t = self.ae.linearise(y, self.level(scale)), scale * self.sigma
        x = at.value + t * self.root(at, y, ε2)
        if not self.ae.architecture.conditioned:
            return x, self.ae(x + t / 2 * ε3)
        # Below its lowest level the model was never trained, so the level stops there.
        return x, self.ae(x + t / 4 * ε3, (5 / 8 * t).clamp_min(self.lowest))


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


def make_kernels(
    ae: AutoEncoder, sigma: float, root: str = "auto", degree: int = 6, gain: float = 1.0,
    halvings: int = 0, lowest: float = 0.0,
) -> dict[str, Kernel]:  # fmt: skip
    """All kernels of a model, by name.

    Args:
        ae: the auto-encoder.
        sigma: the noise level σ of the chains.
        root, degree, gain: as for `covariance_roots.make_root`.
        halvings, lowest: as for `Gibbs`.
    """
    made = make_root(root, ae, degree, gain)
    kernels = {name: kind(ae, sigma, made) for name, kind in KERNELS.items()}
    return kernels | {"gibbs": Gibbs(ae, sigma, made, halvings, lowest)}


def default_scale(kernel: Kernel, x: Tensor) -> float:
    """The default scale of a kernel; for `hidden` and `input` it is measured at rows x (B, d)."""
    return calibrate_scale(kernel, x) if kernel.default_scale is None else kernel.default_scale


@torch.no_grad()
def calibrate_scale(kernel: Kernel, x: Tensor) -> float:
    """The s at which a step moves as far as the local covariance says: E‖δ‖² = α ‖J‖²_F.

    The kernels of the paper need it because J_f J_fᵀ has no scale of its own. The move is measured
    in input space, through the decoder for a kernel in hidden space.

    Args:
        kernel: the kernel.
        x: rows of data (B, d), in the model's units.
    """
    ae = kernel.ae
    rows, g = len(x), torch.Generator().manual_seed(0)
    level = torch.full((rows, 1), kernel.sigma) if ae.architecture.conditioned else None
    v = torch.randint(0, 2, x.shape, generator=g).float() * 2 - 1
    # E‖J v‖² = ‖J‖²_F for random signs v (Hutchinson).
    expected = kernel.sigma * ae.linearise(x, level).jvp(v).square().sum(1).mean().sqrt()
    state = ae.encode(x, level) if kernel.space == "hidden" else x
    noise = torch.randn(rows, kernel.noise, generator=g)
    small = 1e-3  # the step is linear in s only if it is small: the decoder bends a longer one
    scale = torch.full((rows, 1), small)
    with_noise, _ = kernel(state, noise, scale)
    without, _ = kernel(state, torch.zeros_like(noise), scale)
    if kernel.space == "hidden":
        with_noise, without = ae.decode(with_noise, level), ae.decode(without, level)
    move = (with_noise - without).square().sum(1).mean().sqrt() / small
    ratio = float(expected / move)
    return ratio if 0 < ratio < float("inf") else 1.0  # a model that does not move at all


@torch.no_grad()
def training_scale(ae: AutoEncoder, x: Tensor, rho: tuple[float, float]) -> float:
    """The s at which the kernel `hidden` adds the noise that the model was trained to remove.

    That noise is ρ times the spread of the codes, with ρ the geometric middle of the range.

    Args:
        ae: the auto-encoder.
        x: rows of data (B, d), in the model's units.
        rho: the range of ρ (`criterion.hidden_noise`).
    """
    f = ae.linearise_encoder(x)
    n = kernel_noise(f, torch.Generator().manual_seed(0))
    return float((rho[0] * rho[1]) ** 0.5 * spread_scale(f.value, n))
