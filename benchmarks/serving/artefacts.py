"""Make the models of the benchmark with the trainer; nothing is downloaded.

`make_deep` trains a deep denoising auto-encoder d-1000-1000-1000-d for a few seconds on smooth
random pictures, so that its Jacobian has a few leading directions, as those of real models do.
`make_gaussian` builds the optimal auto-encoder of a Gaussian, whose chain has a known law.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from localmoments.artefact import START_POINTS, WEIGHTS, Graph
from trainer.atomic_files import new_version
from trainer.autoencoder import AutoEncoder
from trainer.chain_kernels import make_kernels
from trainer.config import Recipe, make_recipe
from trainer.export import ChainSetup, describe, write_manifest
from trainer.fit import fit
from trainer.graphs import GraphSpec, kernel_graph, model_graphs, write_graph
from trainer.prepare import PreparedData, held_out_rows, prepare
from trainer.run_folder import new_run

HIDDEN = [1000, 1000]  # mirrored by the decoder: d-1000-1000-1000-d
SHAPES = {784: (28, 28), 3136: (56, 56), 12288: (64, 64, 3)}
FACTORS, STARTS = 24, 64
GAUSSIAN_DIMS, GAUSSIAN_ALPHA = 10, 0.36


def make_deep(models: Path, dims: int = 784, rows: int = 2048, epochs: int = 4) -> Path:
    """Train `deep-<dims>` and return its folder below `models`."""
    with tempfile.TemporaryDirectory(prefix="lm-bench-fit-") as folder:
        data = Path(folder) / "pictures.npy"
        np.save(data, draw_pictures(dims, rows))
        recipe = make_recipe({
            "name": f"deep-{dims}", "data": {"source": str(data)},
            "model": {"hidden": HIDDEN, "unit": "silu", "conditioned": True},
            "criterion": {"kind": "dae", "sigma": [0.2, 1.2]},
            "training": {"epochs": epochs, "batch": 128, "learning_rate": 1e-3},
            "sampling": {"kernel": "gibbs", "sigma": 0.8},
        })  # fmt: skip
        prepared = prepare(recipe)
        ae = fit(recipe, prepared, new_run(Path(folder) / "runs", recipe))
        torch.use_deterministic_algorithms(False)  # `fit` turns it on
        return _write_artefact(models, recipe, prepared, ae, 0.8)


def draw_pictures(dims: int, rows: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw sums of waves with random weights, low frequencies stronger, through a sigmoid."""
    rng, t = np.random.default_rng(0), np.linspace(0, 1, dims)
    k = np.arange(1, FACTORS + 1)
    waves = np.cos(np.pi * k[:, None] * t) / np.sqrt(k)[:, None]  # (k, d)
    x = 1 / (1 + np.exp(-3 * rng.standard_normal((rows, FACTORS)) @ waves))
    return (255 * x).astype(np.uint8).reshape(rows, *SHAPES[dims])


def _write_artefact(
    models: Path, recipe: Recipe, prepared: PreparedData, ae: AutoEncoder, sigma: float
) -> Path:
    """Write an artefact with the graphs that the benchmarks use: reconstruct, moments and gibbs."""
    options = recipe.sampling
    gibbs = make_kernels(ae, sigma, options.root, options.root_degree)["gibbs"]
    starts = held_out_rows(prepared, STARTS)
    specs = {name: model_graphs(ae)[name] for name in ("reconstruct", "moments")}
    with new_version(models, recipe.name) as (folder, version):
        tensors = {k: v.detach().contiguous() for k, v in ae.state_dict().items()}
        save_file(tensors | {START_POINTS: starts.contiguous()}, folder / WEIGHTS)
        graphs = _write_graphs({**specs, "gibbs": kernel_graph(gibbs)}, folder)
        chains = ChainSetup(
            {"gibbs": gibbs}, {"gibbs": 1.0}, "gibbs", starts, sigma, sigma, "noisy"
        )
        write_manifest(folder, describe(recipe, prepared, ae, chains, version, graphs))
    return models / recipe.name / version


def _write_graphs(specs: Mapping[str, GraphSpec], folder: Path) -> dict[str, Graph]:
    return {
        name: Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
        for name, spec in specs.items()
    }


def make_gaussian(models: Path) -> tuple[Path, Any, Any]:
    """Write a tied linear auto-encoder with WᵀW = A = C(C + α)⁻¹.

    Returns its folder, and the mean m and covariance C of the Gaussian.
    """
    d, rng = GAUSSIAN_DIMS, np.random.default_rng(4)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    c, m = np.geomspace(2.0, 0.2, d), rng.standard_normal(d)
    a = c / (c + GAUSSIAN_ALPHA)
    A = (Q * a) @ Q.T
    with tempfile.TemporaryDirectory(prefix="lm-bench-fit-") as folder:
        data = Path(folder) / "gaussian.npy"
        np.save(data, rng.standard_normal((500, d)))
        recipe = make_recipe({
            "name": "gaussian", "data": {"source": str(data), "normalise": "none"},
            "model": {"hidden": [d], "unit": "linear", "decoder": "linear", "tied": True},
            "criterion": {"kind": "rcae", "alpha": GAUSSIAN_ALPHA},
        })  # fmt: skip
        prepared = prepare(recipe)
        ae = AutoEncoder(prepared.architecture).eval()
        weights = {"encoder.0.weight": np.sqrt(a)[:, None] * Q.T, "encoder.0.bias": np.zeros(d),
                    "decoder.0.bias": m - A @ m}  # fmt: skip
        ae.load_state_dict({k: torch.tensor(w, dtype=torch.float32) for k, w in weights.items()})
        artefact = _write_artefact(models, recipe, prepared, ae, GAUSSIAN_ALPHA**0.5)
        return artefact, m, (Q * c) @ Q.T
