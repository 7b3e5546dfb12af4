"""What several folders of tests share: double precision, and one small artefact made for real."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from localmoments import artefact as manifests
from localmoments.artefact import START_POINTS, WEIGHTS, Graph
from localmoments.columns import Normaliser
from localmoments.model import Model
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.config import Recipe, make_recipe
from trainer.export import ChainSetup, export, set_up_chains
from trainer.fit import fit
from trainer.graphs import model_graphs, write_graph
from trainer.prepare import PreparedData, prepare
from trainer.run_folder import new_run

pytest_plugins = ["tests.plugins"]  # the `needs` fixture and the summary of skipped tests

TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"source": "mixture", "rows": 400},
    "model": {"hidden": [24], "unit": "silu", "conditioned": True},
    "criterion": {"kind": "dae", "sigma": [0.2, 1.0]},
    "training": {"epochs": 30, "batch": 64, "learning_rate": 1e-2},
    "sampling": {"start_points": 7},
}

LINEAR_GRAPHS = ("reconstruct", "moments", "jacobian")


@pytest.fixture
def double() -> Iterator[None]:
    """New tensors are float64, so that a law holds to rounding and not to 1e-6."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="session")
def tiny_recipe() -> Recipe:
    return make_recipe(TINY)


@pytest.fixture(scope="session")
def tiny_prepared(tiny_recipe: Recipe) -> PreparedData:
    return prepare(tiny_recipe)


@pytest.fixture(scope="session")
def tiny_model(
    tiny_recipe: Recipe, tiny_prepared: PreparedData, tmp_path_factory: pytest.TempPathFactory
) -> AutoEncoder:
    """A denoising auto-encoder of eight columns that takes its noise level as an input."""
    run = new_run(tmp_path_factory.mktemp("runs"), tiny_recipe)
    return fit(tiny_recipe, tiny_prepared, run)


@pytest.fixture(scope="session")
def tiny_chains(
    tiny_recipe: Recipe, tiny_prepared: PreparedData, tiny_model: AutoEncoder
) -> ChainSetup:
    return set_up_chains(tiny_recipe, tiny_prepared, tiny_model)


@pytest.fixture(scope="session")
def tiny_artefact(
    tiny_recipe: Recipe,
    tiny_prepared: PreparedData,
    tiny_model: AutoEncoder,
    tiny_chains: ChainSetup,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The exported folder; copy it before you change it."""
    models = tmp_path_factory.mktemp("models")
    return export(tiny_recipe, tiny_prepared, tiny_model, tiny_chains, models, manifests.read)


@pytest.fixture(scope="session")
def tiny_served(tiny_artefact: Path) -> Model:
    return Model.open(tiny_artefact, threads=1)


@pytest.fixture(scope="session")
def make_linear(
    tiny_served: Model, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Model]:
    """Make the model r(x) = m + A (x - m) from the eigenvalues a (d,) and eigenvectors Q of A."""

    def make(
        a: Any, Q: Any, m: Any, points: Any = None, scale: Any = None, **facts: Any
    ) -> Model:  # fmt: skip
        folder, d = tmp_path_factory.mktemp("linear"), len(a)
        ae = AutoEncoder(Architecture(d, (d,), "linear", "linear", tied=True)).eval()
        weights = {  # one tied layer, W = diag(√a) Qᵀ
            "encoder.0.weight": np.sqrt(a)[:, None] * Q.T,
            "encoder.0.bias": np.zeros(d),
            "decoder.0.bias": m - (Q * a) @ Q.T @ m,
        }
        ae.load_state_dict({k: torch.tensor(v, dtype=torch.float32) for k, v in weights.items()})
        starts = torch.tensor(np.zeros((3, d)) if points is None else points, dtype=torch.float32)
        tensors = {k: v.contiguous() for k, v in ae.state_dict().items()}
        save_file({**tensors, START_POINTS: starts}, folder / WEIGHTS)
        graphs = {}
        for name in LINEAR_GRAPHS:
            spec = model_graphs(ae)[name]
            graphs[name] = Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
        units = Normaliser(np.zeros(d), np.ones(d) if scale is None else np.asarray(scale, float))
        facts |= {"graphs": graphs, "input_dims": d, "noise_levels": None, "normaliser": units}
        return Model(folder, replace(tiny_served.manifest, **facts), threads=1)

    return make
