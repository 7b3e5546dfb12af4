"""Models whose right figures are known, and one small model of images with labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from localmoments.artefact import START_POINTS, WEIGHTS, Graph
from localmoments.model import Model
from trainer.autoencoder import AutoEncoder
from trainer.config import make_recipe
from trainer.export import describe, set_up_chains
from trainer.fit import fit
from trainer.graphs import kernel_graph, model_graphs, write_graph
from trainer.prepare import prepare
from trainer.run_folder import new_run


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Nothing that a test makes lands in the cache of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def served(recipe, prepared, ae, folder, kernels):
    """A model with some of the kernels, and only the graphs that figures need."""
    chains = set_up_chains(recipe, prepared, ae)
    chains = replace(chains, kernels={name: chains.kernels[name] for name in kernels})
    save_file({**ae.state_dict(), START_POINTS: chains.starts.contiguous()}, folder / WEIGHTS)
    specs = {name: model_graphs(ae)[name] for name in ("reconstruct", "encode", "moments")}
    specs |= {name: kernel_graph(kernel) for name, kernel in chains.kernels.items()}
    graphs = {
        name: Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
        for name, spec in specs.items()
    }
    manifest = describe(recipe, prepared, ae, chains, "1", graphs)
    return Model(folder, manifest, threads=1)


@pytest.fixture(scope="session")
def exact(tmp_path_factory):
    """The best auto-encoder for the built-in Gaussian, as graphs: r(z) = A z + (I - A) m."""
    recipe = make_recipe({
        "name": "exact", "data": {"source": "gaussian", "rows": 4000},
        "model": {"hidden": [1], "unit": "linear", "tied": False, "decoder": "linear"},
        "criterion": {"kind": "dae", "sigma": 0.5},
    })  # fmt: skip
    prepared = prepare(recipe)
    truth, normaliser, d = prepared.dataset.law, prepared.normaliser, prepared.dataset.dims
    D = normaliser.scale
    C = truth.covariances[0] / np.outer(D, D)
    m = (truth.means[0] - normaliser.shift) / D
    A = C @ np.linalg.inv(C + 0.25 * np.eye(d))
    prepared = replace(prepared, architecture=replace(prepared.architecture, hidden=(d,)))
    ae = AutoEncoder(prepared.architecture).eval()
    weights = {"encoder.0.weight": A, "encoder.0.bias": m - A @ m,
               "decoder.0.weight": np.eye(d), "decoder.0.bias": np.zeros(d)}  # fmt: skip
    ae.load_state_dict({k: torch.from_numpy(v).float() for k, v in weights.items()})
    model = served(recipe, prepared, ae, tmp_path_factory.mktemp("exact"), ["gibbs", "moment"])
    return model, truth, prepared


DIGITS = {
    "name": "digits",
    "data": {"source": "digits"},
    "model": {"hidden": [64], "unit": "silu"},
    "criterion": {"kind": "dae", "sigma": 0.3},
    "training": {"epochs": 8, "batch": 64, "learning_rate": 5e-3},
    "sampling": {"start_points": 16},
}


@pytest.fixture(scope="session")
def digits():
    return prepare(make_recipe(DIGITS))


@pytest.fixture(scope="session")
def digits_model(digits, tmp_path_factory) -> Model:
    """Images with labels, briefly trained."""
    recipe = make_recipe(DIGITS)
    ae = fit(recipe, digits, new_run(tmp_path_factory.mktemp("runs"), recipe))
    return served(recipe, digits, ae, tmp_path_factory.mktemp("digits"), ["hidden", "gibbs"])
