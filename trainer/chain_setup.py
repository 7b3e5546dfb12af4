"""Start points and step sizes: what an artefact's chains need before their first step."""

import torch
from torch import Tensor

from localmoments.noise import normals
from trainer.autoencoder import AutoEncoder
from trainer.criteria import kernel_noise, spread_scale
from trainer.kernels import Kernel

SETTLING_STEPS = 20


@torch.no_grad()
def walked(
    kernel: Kernel, x: Tensor, scale: float, steps: int, *, emit: str = "mean", seed: int = 0
) -> Tensor:
    """What the chain emits after each of `steps` steps from x (W, d); (steps, W, d)."""
    state = x
    if kernel.space == "hidden":
        level = torch.full((len(x), 1), kernel.sigma)
        state = kernel.ae.encode(x, level if kernel.ae.architecture.conditioned else None)
    scales = torch.full((len(x), 1), scale)
    noisy = emit == "noisy" and kernel.space == "input"
    emitted = []
    for step in range(steps):
        noise = torch.from_numpy(normals(seed, step, (len(x), kernel.noise)))
        state, mean = kernel(state, noise, scales)
        emitted.append(state if noisy else mean)
    return torch.stack(emitted)


@torch.no_grad()
def calibrated_scale(kernel: Kernel, x: Tensor) -> float:
    """The s at which one step moves as far as the local covariance says: E‖δ‖² = α ‖J‖²_F.

    For the paper's own kernels, whose J_f J_fᵀ has no scale of its own. The move is measured in
    input space, for a hidden-space kernel through its decoder, by a small step made longer.
    """
    ae, small = kernel.ae, 1e-3
    rows, g = len(x), torch.Generator().manual_seed(0)
    level = torch.full((rows, 1), kernel.sigma) if ae.architecture.conditioned else None
    v = torch.randint(0, 2, x.shape, generator=g).float() * 2 - 1
    wanted = kernel.sigma * ae.linearise(x, level).jvp(v).square().sum(1).mean().sqrt()
    state = ae.encode(x, level) if kernel.space == "hidden" else x
    noise = torch.randn(rows, kernel.noise, generator=g)
    scale = torch.full((rows, 1), small)
    moved, _ = kernel(state, noise, scale)
    still, _ = kernel(state, torch.zeros_like(noise), scale)
    if kernel.space == "hidden":
        moved, still = ae.decode(moved, level), ae.decode(still, level)
    move = (moved - still).square().sum(1).mean().sqrt() / small
    ratio = float(wanted / move)
    return ratio if 0 < ratio < float("inf") else 1.0


@torch.no_grad()
def trained_scale(ae: AutoEncoder, x: Tensor, rho: tuple[float, float]) -> float:
    """The s at which the kernel `hidden` adds what the model was trained to undo: noise of ρ parts
    of the code's spread, ρ the range's geometric middle."""
    f = ae.linearise_encoder(x)
    n = kernel_noise(f, torch.Generator().manual_seed(0))
    return float((rho[0] * rho[1]) ** 0.5 * spread_scale(f.value, n))


def default_scale(kernel: Kernel, x: Tensor) -> float:
    return calibrated_scale(kernel, x) if kernel.default_scale is None else kernel.default_scale


def start_points(kernel: Kernel, x: Tensor, scale: float) -> Tensor:
    """Points that chains may begin at, made by the model: where chains from x stand later on."""
    return walked(kernel, x, scale, SETTLING_STEPS)[-1]
