"""The pictures that a run leaves beside its checkpoint, drawn from the trained model."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localmoments.arrays import Doubles
from localmoments.estimators import (
    Moments,
    in_user_units,
    local_moments,
    scaled_moments,
    spectrum_of,
)
from trainer.autoencoder import AutoEncoder
from trainer.chain_setup import walked
from trainer.checkpoint import Loss
from trainer.config import Recipe
from trainer.errors import explain_write_errors
from trainer.export import Chains
from trainer.layers import Dense
from trainer.plots.curves import draw_losses
from trainer.plots.local import draw_filters, draw_reconstructions, draw_tangents
from trainer.plots.samples import draw_samples
from trainer.plots.view import View, view_of
from trainer.prepare import Prepared, held_out_rows

TANGENTS = 8
WALKERS, KEPT, THIN = 10, 20, 5
SCATTERED = 500  # walkers and tangents of a table's scatter plot


def draw_gallery(
    recipe: Recipe,
    prepared: Prepared,
    ae: AutoEncoder,
    chains: Chains,
    losses: tuple[Loss, ...],
    folder: Path,
) -> list[Path]:
    """All pictures of a model; the paths, in the order in which the card shows them."""
    view = view_of(prepared.dataset, prepared.split)
    image = view.image is not None
    names = ["samples", "reconstructions", "tangents", *(["filters"] if image else [])]
    names += ["losses"] if losses else []
    paths = {name: folder / f"{name}.png" for name in names}
    with explain_write_errors(folder), torch.no_grad():
        _draw_samples(recipe, prepared, view, chains, paths["samples"])
        _draw_reconstructions(prepared, view, ae, chains, paths["reconstructions"])
        _draw_tangents(prepared, view, ae, chains, paths["tangents"])
        if image and isinstance(ae.encoder[0], Dense):
            draw_filters(view, ae.encoder[0].weight.numpy(), paths["filters"])
        if losses:
            draw_losses(losses, paths["losses"], recipe.name)
    return list(paths.values())


def _draw_samples(
    recipe: Recipe, prepared: Prepared, view: View, chains: Chains, path: Path
) -> None:
    walkers = WALKERS if view.image is not None else SCATTERED
    starts = chains.starts[torch.arange(walkers) % len(chains.starts)]
    kernel, scale = chains.kernels[chains.default], chains.scales[chains.default]
    steps = walked(kernel, starts, scale, KEPT * THIN, emit=chains.emit, seed=1)[THIN - 1 :: THIN]
    chain = prepared.normaliser.to_user(steps.numpy())  # (KEPT, W, d)
    draw_samples(view, chain, path, f"{recipe.name}, kernel {chains.default}, every {THIN}th step")


def _draw_reconstructions(
    prepared: Prepared, view: View, ae: AutoEncoder, chains: Chains, path: Path
) -> None:
    count = 30 if view.image is not None else 200
    z = held_out_rows(prepared, count)
    g = torch.Generator().manual_seed(1)
    noisy = z
    if prepared.criterion.kind == "dae":
        noisy = prepared.criterion.corrupted(z, torch.full((len(z), 1), chains.sigma), g)
    r: Tensor = ae(noisy, _level(ae, chains.sigma, len(z)))
    to_user = prepared.normaliser.to_user
    draw_reconstructions(view, to_user(z.numpy()), to_user(noisy.numpy()), to_user(r.numpy()), path)


def _draw_tangents(
    prepared: Prepared, view: View, ae: AutoEncoder, chains: Chains, path: Path
) -> None:
    count = 8 if view.image is not None else 300
    z, sigma = held_out_rows(prepared, count), chains.moments_sigma
    local = [moments_in_torch(prepared, ae, sigma, row[None]) for row in z]
    draw_tangents(
        view, prepared.normaliser.to_user(z.numpy()),
        np.stack([m.tangents[:TANGENTS] for m in local]),
        np.stack([m.eigenvalues[:TANGENTS] for m in local]), path,
    )  # fmt: skip


def moments_in_torch(prepared: Prepared, ae: AutoEncoder, sigma: float, z: Tensor) -> Moments:
    """Asymptotic moments at one row z (1, d), in the user's units."""
    at = ae.linearise(z, _level(ae, sigma, 1))

    def products(v: NDArray[np.floating]) -> Doubles:
        u = torch.as_tensor(v, dtype=torch.float32)[None]  # (1, k, d)
        return ((at.jvp(u) + at.vjp(u)) / 2)[0].double().numpy()

    alpha, units = sigma**2, prepared.normaliser
    if units.is_uniform:
        spectrum = spectrum_of(products, z.shape[1], TANGENTS)
        local = local_moments(z[0].numpy(), at.value[0].numpy(), spectrum, alpha, "asymptotic")
        return in_user_units(local, units)
    spectrum = spectrum_of(products, z.shape[1], TANGENTS, scale=units.scale)
    return scaled_moments(z[0].numpy(), at.value[0].numpy(), spectrum, alpha, units)


def _level(ae: AutoEncoder, sigma: float, rows: int) -> Tensor | None:
    return torch.full((rows, 1), sigma) if ae.architecture.conditioned else None
