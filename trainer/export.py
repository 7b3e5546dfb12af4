"""From a trained model to a verified artefact (DESIGN, section 3)."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from localmoments import artefact as manifests
from localmoments.arrays import Floats
from localmoments.artefact import MANIFEST, START_POINTS, WEIGHTS, Graph, Manifest
from trainer.artefact import library_versions, new_version, now
from trainer.autoencoder import AutoEncoder
from trainer.card import card
from trainer.chain_setup import default_scale, start_points, trained_scale
from trainer.config import Recipe
from trainer.data import Dataset, record_split
from trainer.evaluate.trust import largest_passing_level, levels_between
from trainer.fit import VALIDATION_ROWS
from trainer.graphs import GraphSpec, kernel_graph, make_kernels, model_graphs
from trainer.kernels import Kernel
from trainer.onnx_files import OPSET, write_graph
from trainer.prepare import Prepared, held_out_rows

Judge = Callable[[Path], Manifest]  # a written artefact -> its manifest with figures

CARD = "card.md"
CALIBRATION_ROWS = 256


@dataclass(frozen=True)
class Chains:
    """The kernels of a model with their scales, and which one is the default."""

    kernels: Mapping[str, Kernel]
    scales: Mapping[str, float]
    default: str
    starts: Tensor  # (n, d), in the model's units
    sigma: float  # the noise level of chains; α = σ²
    moments_sigma: float  # the noise level for clean rows
    emit: str  # "mean" or "noisy"


def make_chains(recipe: Recipe, prepared: Prepared, ae: AutoEncoder) -> Chains:
    """Kernels over the trained model, their scales set on held-out rows."""
    options = recipe.sampling
    rows = held_out_rows(prepared, CALIBRATION_ROWS)
    sigma = served_sigma(recipe, prepared, rows)
    kernels = make_kernels(
        ae, sigma, options.root, options.root_degree, options.gain, options.halvings,
        recipe.criterion.levels[0],
    )  # fmt: skip
    scales = {name: default_scale(kernel, rows) for name, kernel in kernels.items()}
    if prepared.criterion.hidden_noise[0] > 0:
        scales["hidden"] = trained_scale(ae, rows, prepared.criterion.hidden_noise)
    scales |= options.scales
    default = options.kernel
    if default == "auto":
        default = "hidden" if recipe.criterion.kind == "cae" else "gibbs"
    starts = held_out_rows(prepared, options.start_points)
    if options.starts == "synthetic":
        starts = start_points(kernels[default], starts, scales[default])
    emit = options.emit
    if emit == "auto":
        emit = "noisy" if prepared.dataset.image is None else "mean"
    clean = moments_sigma_of(recipe, ae, held_out_rows(prepared, VALIDATION_ROWS), sigma)
    return Chains(kernels, scales, default, starts, sigma, clean, emit)


def moments_sigma_of(recipe: Recipe, ae: AutoEncoder, rows: Tensor, sigma: float) -> float:
    """The largest trained level at which clean rows pass the trace test (evaluate.trust)."""
    if not ae.architecture.conditioned:
        return sigma

    def reconstruct(z: Floats, level: float) -> Floats:
        with torch.no_grad():
            r: Tensor = ae(torch.from_numpy(z), torch.full((len(z), 1), level))
        return r.numpy()

    levels = levels_between(*recipe.criterion.levels, sigma)
    return largest_passing_level(reconstruct, rows.numpy(), levels)


def served_sigma(recipe: Recipe, prepared: Prepared, rows: Tensor) -> float:
    """σ as the recipe has it; for masking and the like, the corruption's own root mean square."""
    c = prepared.criterion
    if c.kind != "dae" or c.corruption == "gaussian":
        return recipe.sigma
    noisy = c.corrupted(rows, torch.zeros(len(rows), 1), torch.Generator().manual_seed(0))
    return max(1e-3, float((noisy - rows).square().mean().sqrt()))


def export(
    recipe: Recipe,
    prepared: Prepared,
    ae: AutoEncoder,
    chains: Chains,
    models: Path,
    pictures: list[Path],
    judge: Judge,
) -> Path:
    """Write `models/<name>/<next version>`, judged, and return it."""
    ae.eval()
    with new_version(models, recipe.name) as (folder, version):
        tensors = {k: v.detach().contiguous() for k, v in ae.state_dict().items()}
        save_file(tensors | {START_POINTS: chains.starts.contiguous()}, folder / WEIGHTS)
        graphs = _write_graphs(ae, chains, folder)
        for picture in pictures:
            shutil.copyfile(picture, folder / picture.name)
        finish(folder, describe(recipe, prepared, ae, chains, version, graphs))
        manifest = judge(folder)
        (folder / CARD).write_text(card(manifest, [p.name for p in pictures]), encoding="utf-8")
        finish(folder, manifest)
    return models / recipe.name / version


def finish(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest with the sha256 of every other file, and read it back."""
    names = sorted(p.name for p in folder.iterdir() if p.name != MANIFEST)
    files = {name: manifests.sha256(folder / name) for name in names}
    manifest = replace(manifest, files=files)
    (folder / MANIFEST).write_text(manifests.dumps(manifest), encoding="utf-8")
    return manifests.read(folder)


def _write_graphs(ae: AutoEncoder, chains: Chains, folder: Path) -> dict[str, Graph]:
    specs: dict[str, GraphSpec] = model_graphs(ae)
    specs |= {name: kernel_graph(kernel) for name, kernel in chains.kernels.items()}
    graphs = {}
    for name, spec in specs.items():
        path = write_graph(name, spec, folder)
        graphs[name] = Graph(path.name, spec.inputs, spec.outputs)
    return graphs


def describe(
    recipe: Recipe,
    prepared: Prepared,
    ae: AutoEncoder,
    chains: Chains,
    version: str,
    graphs: Mapping[str, Graph],
) -> Manifest:
    """The manifest of a model, its files still to be listed."""
    c, a, dataset = recipe.criterion, ae.architecture, prepared.dataset
    kernels = {
        name: manifests.Kernel(name, kernel.space, kernel.noise, chains.scales[name])
        for name, kernel in chains.kernels.items()
    }
    return Manifest(
        name=recipe.name,
        version=version,
        kind=c.kind,
        loss=c.loss,
        alpha=chains.sigma**2,
        sigma=chains.sigma,
        moments_sigma=chains.moments_sigma,
        noise_levels=c.levels if a.conditioned else None,
        covariance_scale=covariance_scale(recipe),
        input_dims=a.dims,
        hidden_dims=a.hidden[-1],
        features=dataset.features,
        image=dataset.image,
        normaliser=prepared.normaliser,
        graphs=graphs,
        kernels=kernels,
        default_kernel=chains.default,
        default_emit=chains.emit,
        opset=OPSET,
        files={},
        data=_data_facts(dataset, prepared, recipe),
        recipe=recipe.as_dict(),
        libraries=library_versions(),
        created=now(),
    )


def covariance_scale(recipe: Recipe) -> str:
    """`absolute` where theory fixes the scale of αA, `relative` where a factor is unknown.

    A DAE's αA is the posterior covariance (Tweedie) if the noise is Gaussian and of known level:
    one level, or a model that takes its level as an input. Walkback trains at points of the chain,
    whose noise is neither. The argument for the RCAE needs the squared loss. A CAE's penalty is on
    f and not on r, so its α says nothing about the scale of A.
    """
    c = recipe.criterion
    low, high = c.levels
    known_level = recipe.model.conditioned or low == high
    dae = c.kind == "dae" and c.corruption == "gaussian" and c.walkback == 1 and known_level
    rcae = c.kind == "rcae" and c.loss == "squared"
    return "absolute" if dae or rcae else "relative"


def _data_facts(dataset: Dataset, prepared: Prepared, recipe: Recipe) -> dict[str, Any]:
    """What the rows were, and which held-out rows chose what: every call of `held_out_rows` whose
    result shapes the model belongs into `chose`."""
    chose = {
        "weights": VALIDATION_ROWS,
        "scales": CALIBRATION_ROWS,
        "start points": recipe.sampling.start_points,
    }
    return {
        "name": dataset.name,
        "rows": dataset.rows,
        "training_rows": len(prepared.split.train),
        "held_out_rows": len(prepared.split.validation),
        "fingerprint": dataset.fingerprint,
        "split": record_split(dataset, prepared.split, chose),
    }
