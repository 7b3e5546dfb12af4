"""The pictures that a run leaves beside its checkpoint, drawn from the trained model."""

import contextlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localmoments.arrays import Doubles
from localmoments.chain import encode_state, make_transition, positions
from localmoments.errors import DivergedError
from localmoments.estimators import (
    PointMoments,
    in_user_units,
    local_moments,
    scaled_moments,
    spectrum_of,
)
from localmoments.model import Model
from trainer.autoencoder import AutoEncoder
from trainer.checkpoint import Loss
from trainer.config import Recipe
from trainer.errors import explain_write_errors
from trainer.export import ChainSetup, TorchModel, describe
from trainer.layers import Dense
from trainer.plots import (
    View,
    draw_filters,
    draw_losses,
    draw_reconstructions,
    draw_samples,
    draw_tangents,
)
from trainer.prepare import Prepared, held_out_rows

BACKGROUND_ROWS = 2_000
TANGENTS = 8
WALKERS, KEPT, THIN = 10, 20, 5
SCATTERED = 500  # walkers and tangents of a table's scatter plot


def view_of(prepared: Prepared) -> View:
    """How this data is looked at; images that stay within [0, 1] or bytes keep that range."""
    rows = prepared.normaliser.to_user(held_out_rows(prepared, BACKGROUND_ROWS).numpy())
    low, high = float(rows.min()), float(rows.max())
    if prepared.architecture.decoder == "sigmoid":
        low, high = 0.0, float(prepared.normaliser.scale.max())
    return View(prepared.dataset.image, prepared.dataset.features, low, high, rows)


def draw_gallery(
    recipe: Recipe,
    prepared: Prepared,
    ae: AutoEncoder,
    chains: ChainSetup,
    losses: tuple[Loss, ...],
    folder: Path,
) -> list[Path]:
    """All pictures of a model; the paths, in the order in which the card shows them."""
    view = view_of(prepared)
    image = view.image is not None
    names = ["samples", "reconstructions", "tangents", *(["filters"] if image else [])]
    names += ["losses"] if losses else []
    paths = {name: folder / f"{name}.png" for name in names}
    with explain_write_errors(folder), torch.no_grad():
        model = TorchModel(describe(recipe, prepared, ae, chains, "0", {}), ae, chains.kernels)
        _draw_samples(recipe, prepared, view, chains, model, paths["samples"])
        _draw_reconstructions(prepared, view, ae, chains, paths["reconstructions"])
        _draw_tangents(prepared, view, ae, chains, paths["tangents"])
        if image and isinstance(ae.encoder[0], Dense):
            draw_filters(view, ae.encoder[0].weight.numpy(), paths["filters"])
        if losses:
            draw_losses(losses, paths["losses"], recipe.name)
    return list(paths.values())


def _draw_samples(
    recipe: Recipe, prepared: Prepared, view: View, chains: ChainSetup, model: Model, path: Path
) -> None:
    walkers = WALKERS if view.image is not None else SCATTERED
    starts = chains.starts[torch.arange(walkers) % len(chains.starts)].numpy()
    walk, kept = make_transition(model, seed=1), [starts]
    with contextlib.suppress(DivergedError):
        for p in positions(model, walk, encode_state(model, walk.kernel, starts), KEPT * THIN):
            if p.step % THIN == 0:
                kept.append(p.noisy if chains.emit == "noisy" else p.mean)
    chain = prepared.normaliser.to_user(np.stack(kept[1:] or kept))  # (KEPT, W, d)
    draw_samples(view, chain, path, f"{recipe.name}, kernel {chains.default}, every {THIN}th step")


def _draw_reconstructions(
    prepared: Prepared, view: View, ae: AutoEncoder, chains: ChainSetup, path: Path
) -> None:
    count = 30 if view.image is not None else 200
    z = held_out_rows(prepared, count)
    g = torch.Generator().manual_seed(1)
    noisy = z
    if prepared.criterion.kind == "dae":
        noisy = prepared.criterion.corrupt(z, torch.full((len(z), 1), chains.sigma), g)
    r: Tensor = ae(noisy, _level(ae, chains.sigma, len(z)))
    to_user = prepared.normaliser.to_user
    draw_reconstructions(view, to_user(z.numpy()), to_user(noisy.numpy()), to_user(r.numpy()), path)


def _draw_tangents(
    prepared: Prepared, view: View, ae: AutoEncoder, chains: ChainSetup, path: Path
) -> None:
    count = 8 if view.image is not None else 300
    z, sigma = held_out_rows(prepared, count), chains.moments_sigma
    local = [moments_in_torch(prepared, ae, sigma, row[None]) for row in z]
    draw_tangents(
        view, prepared.normaliser.to_user(z.numpy()),
        np.stack([m.tangents[:TANGENTS] for m in local]),
        np.stack([m.eigenvalues[:TANGENTS] for m in local]), path,
    )  # fmt: skip


def moments_in_torch(prepared: Prepared, ae: AutoEncoder, sigma: float, z: Tensor) -> PointMoments:
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
