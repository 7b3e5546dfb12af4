"""Export: from a trained model to a verified artefact, `models/<name>/<version>/`."""

import contextlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from localmoments import artefact as manifests
from localmoments.arrays import Arrays, Floats
from localmoments.artefact import MANIFEST, START_POINTS, WEIGHTS, Graph, Manifest
from localmoments.chain import encode_state, make_transition, positions
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.atomic_files import new_version
from trainer.autoencoder import AutoEncoder
from trainer.card import CAPTIONS, format_card
from trainer.chain_kernels import Kernel, default_scale, make_kernels, training_scale
from trainer.config import Recipe
from trainer.data import Dataset, record_split
from trainer.evaluate.trust import largest_passing_level, levels_between
from trainer.fit import VALIDATION_ROWS
from trainer.graphs import OPSET, GraphSpec, kernel_graph, model_graphs, write_graph
from trainer.prepare import PreparedData, held_out_rows

Complete = Callable[[Path], Manifest]  # a written artefact -> its manifest with figures

CARD = "card.md"
CALIBRATION_ROWS = 256
SETTLING_STEPS = 20  # from a held-out row to a start point
LIBRARIES = (
    "localmoments", "numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "onnxscript", "safetensors",
    "torch",
)  # fmt: skip


@dataclass(frozen=True)
class ChainSetup:
    """The kernels of a model with their scales, and what chains use by default."""

    kernels: Mapping[str, Kernel]
    scales: Mapping[str, float]
    default: str  # a kernel's name
    starts: Tensor  # (n, d), in the model's units
    sigma: float  # the noise level of chains; α = σ²
    moments_sigma: float  # the noise level for clean rows
    emit: str  # "mean" or "noisy"


def set_up_chains(recipe: Recipe, prepared: PreparedData, ae: AutoEncoder) -> ChainSetup:
    """Make the kernels of a trained model; measure scales and start points on held-out rows."""
    options = recipe.sampling
    rows = held_out_rows(prepared, CALIBRATION_ROWS)
    sigma = choose_sigma(recipe, prepared, rows)
    kernels = make_kernels(
        ae, sigma, options.root, options.root_degree, options.gain, options.halvings,
        recipe.criterion.levels[0],
    )  # fmt: skip
    scales = {name: default_scale(kernel, rows) for name, kernel in kernels.items()}
    if prepared.criterion.hidden_noise[0] > 0:
        scales["hidden"] = training_scale(ae, rows, prepared.criterion.hidden_noise)
    scales.update((str(name), scale) for name, scale in options.scales.items())
    default = options.kernel
    if default == "auto":
        default = "hidden" if recipe.criterion.kind == "cae" else "gibbs"
    emit = options.emit
    if emit == "auto":
        emit = "noisy" if prepared.dataset.image is None else "mean"
    clean = choose_moments_sigma(recipe, ae, held_out_rows(prepared, VALIDATION_ROWS), sigma)
    starts = held_out_rows(prepared, options.start_points)
    chains = ChainSetup(kernels, scales, default, starts, sigma, clean, emit)
    if options.starts == "data":
        return chains
    model = TorchModel(describe(recipe, prepared, ae, chains, "0", {}), ae, kernels)
    return replace(chains, starts=make_start_points(model, starts))


class TorchModel(Model):
    """A model whose graphs run in PyTorch, to walk chains before the graphs are exported."""

    def __init__(self, manifest: Manifest, ae: AutoEncoder, kernels: Mapping[str, Kernel]) -> None:
        super().__init__(Path(), manifest)
        self._specs = model_graphs(ae) | {k: kernel_graph(v) for k, v in kernels.items()}

    @torch.no_grad()
    def run(self, graph: str, **inputs: NDArray[np.float32]) -> Arrays:
        """Run a graph: named arrays in, named arrays out."""
        spec = self._specs[graph]
        outputs = spec.module(*(torch.from_numpy(inputs[name]) for name in spec.inputs))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return {name: x.numpy() for name, x in zip(spec.outputs, outputs, strict=True)}


def make_start_points(model: Model, rows: Tensor) -> Tensor:
    """Points at which chains may start: where chains from `rows` (n, d) are a few steps later.

    They are samples, so that the artefact contains no row of the data. A chain that diverges
    stops at its last finite position.
    """
    walk = make_transition(model, seed=0)
    points = rows.numpy()
    with contextlib.suppress(DivergedError):
        for position in positions(
            model, walk, encode_state(model, walk.kernel, points), SETTLING_STEPS
        ):
            points = position.mean
    return torch.from_numpy(points)


def choose_moments_sigma(recipe: Recipe, ae: AutoEncoder, rows: Tensor, sigma: float) -> float:
    """The noise level for clean rows: the largest at which they pass the trace test.

    See trainer.evaluate.trust.
    """
    if not ae.architecture.conditioned:
        return sigma

    def reconstruct(z: Floats, level: float) -> Floats:
        with torch.no_grad():
            r: Tensor = ae(torch.from_numpy(z), torch.full((len(z), 1), level))
        return r.numpy()

    levels = levels_between(*recipe.criterion.levels, sigma)
    return largest_passing_level(reconstruct, rows.numpy(), levels)


def choose_sigma(recipe: Recipe, prepared: PreparedData, rows: Tensor) -> float:
    """The noise level σ of the chains.

    It is that of the recipe. For masking and salt-and-pepper it is the root mean square of what
    they change, measured at `rows` (n, d).
    """
    c = prepared.criterion
    if c.kind != "dae" or c.corruption == "gaussian":
        return recipe.sigma
    noisy = c.corrupt(rows, torch.zeros(len(rows), 1), torch.Generator().manual_seed(0))
    return max(1e-3, float((noisy - rows).square().mean().sqrt()))


def export(
    recipe: Recipe,
    prepared: PreparedData,
    ae: AutoEncoder,
    chains: ChainSetup,
    models: Path,
    complete: Complete,
) -> Path:
    """Write the next version of a model.

    Args:
        recipe: the recipe of the run.
        prepared: its data.
        ae: the trained model.
        chains: its kernels and start points.
        models: the folder of all models.
        complete: called with the written artefact; adds plots to its folder and returns its
            manifest with figures.

    Returns:
        The new folder, `models/<name>/<version>`.

    Raises:
        ExportError: if a graph does not compute what PyTorch computes.
        RunFolderError: if the folder cannot be written.
    """
    ae.eval()
    with new_version(models, recipe.name) as (folder, number):
        tensors = {k: v.detach().contiguous() for k, v in ae.state_dict().items()}
        save_file(tensors | {START_POINTS: chains.starts.contiguous()}, folder / WEIGHTS)
        graphs = _write_graphs(ae, chains, folder)
        write_manifest(folder, describe(recipe, prepared, ae, chains, number, graphs))
        manifest = complete(folder)
        plots = [f"{name}.png" for name in CAPTIONS if (folder / f"{name}.png").exists()]
        (folder / CARD).write_text(format_card(manifest, plots), encoding="utf-8")
        write_manifest(folder, manifest)
    return models / recipe.name / number


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest with the sha256 of every other file in the folder, and read it back."""
    names = sorted(p.name for p in folder.iterdir() if p.name != MANIFEST)
    files = {name: manifests.sha256(folder / name) for name in names}
    manifest = replace(manifest, files=files)
    (folder / MANIFEST).write_text(manifests.dumps(manifest), encoding="utf-8")
    return manifests.read(folder)


def _write_graphs(ae: AutoEncoder, chains: ChainSetup, folder: Path) -> dict[str, Graph]:
    specs: dict[str, GraphSpec] = model_graphs(ae)
    specs |= {name: kernel_graph(kernel) for name, kernel in chains.kernels.items()}
    graphs = {}
    for name, spec in specs.items():
        path = write_graph(name, spec, folder)
        graphs[name] = Graph(path.name, spec.inputs, spec.outputs)
    return graphs


def describe(
    recipe: Recipe,
    prepared: PreparedData,
    ae: AutoEncoder,
    chains: ChainSetup,
    number: str,
    graphs: Mapping[str, Graph],
) -> Manifest:
    """The manifest of a model, without the list of its files."""
    c, a, dataset = recipe.criterion, ae.architecture, prepared.dataset
    kernels = {
        name: manifests.Kernel(name, kernel.space, kernel.noise, chains.scales[name])
        for name, kernel in chains.kernels.items()
    }
    return Manifest(
        name=recipe.name,
        version=number,
        kind=c.kind,
        loss=c.loss,
        alpha=chains.sigma**2,
        sigma=chains.sigma,
        moments_sigma=chains.moments_sigma,
        noise_levels=c.levels if a.conditioned else None,
        covariance_scale=find_covariance_scale(recipe),
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
        data=_describe_data(dataset, prepared, recipe),
        recipe=recipe.as_dict(),
        libraries=library_versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def find_covariance_scale(recipe: Recipe) -> str:
    """`absolute` if theory fixes the scale of αA, `relative` if a factor is unknown.

    For a DAE, αA is the posterior covariance (Tweedie) if the noise is Gaussian and its level is
    known: there is one level, or the model takes its level as an input. Walkback trains at points
    of the chain, whose noise is not Gaussian. For the RCAE the argument needs the squared loss. The
    penalty of a CAE is on f and not on r, so its α does not determine the scale of A.
    """
    c = recipe.criterion
    low, high = c.levels
    known_level = recipe.model.conditioned or low == high
    dae = c.kind == "dae" and c.corruption == "gaussian" and c.walkback == 1 and known_level
    rcae = c.kind == "rcae" and c.loss == "squared"
    return "absolute" if dae or rcae else "relative"


def _describe_data(dataset: Dataset, prepared: PreparedData, recipe: Recipe) -> dict[str, Any]:
    """What the data was, and how many held-out rows `fit` used to select something.

    `chose` must list every call of `held_out_rows` whose result has an effect on the model.
    """
    chose = {
        "weights": VALIDATION_ROWS,
        "scales": CALIBRATION_ROWS,
        "start points": recipe.sampling.start_points,
    }
    return {
        "name": dataset.name,
        "rows": dataset.rows,
        "training_rows": len(prepared.split.train),
        "held_out_rows": len(prepared.split.held_out),
        "fingerprint": dataset.fingerprint,
        "split": record_split(dataset, prepared.split, chose),
    }


def library_versions() -> dict[str, str]:
    """The versions of Python and of those LIBRARIES that are installed."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
