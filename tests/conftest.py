"""What several folders of tests share: double precision, and one small artefact made for real."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from localmoments import artefact as manifests
from localmoments.model import Model
from trainer.autoencoder import AutoEncoder
from trainer.config import Recipe, make_recipe
from trainer.export import Chains, export, make_chains
from trainer.fit import fit
from trainer.prepare import Prepared, prepare
from trainer.run import new_run

pytest_plugins = ["tests.plugins"]  # the `needs` fixture and the summary of skipped tests

TINY: dict[str, Any] = {
    "name": "tiny",
    "data": {"source": "mixture", "rows": 400},
    "model": {"hidden": [24], "unit": "silu", "conditioned": True},
    "criterion": {"kind": "dae", "sigma": [0.2, 1.0]},
    "training": {"epochs": 30, "batch": 64, "learning_rate": 1e-2},
    "sampling": {"start_points": 7},
}


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
def tiny_prepared(tiny_recipe: Recipe) -> Prepared:
    return prepare(tiny_recipe)


@pytest.fixture(scope="session")
def tiny_model(
    tiny_recipe: Recipe, tiny_prepared: Prepared, tmp_path_factory: pytest.TempPathFactory
) -> AutoEncoder:
    """A denoising auto-encoder of eight columns that is told its noise level, briefly trained."""
    run = new_run(tmp_path_factory.mktemp("runs"), tiny_recipe)
    return fit(tiny_recipe, tiny_prepared, run)


@pytest.fixture(scope="session")
def tiny_chains(tiny_recipe: Recipe, tiny_prepared: Prepared, tiny_model: AutoEncoder) -> Chains:
    return make_chains(tiny_recipe, tiny_prepared, tiny_model)


@pytest.fixture(scope="session")
def tiny_artefact(
    tiny_recipe: Recipe,
    tiny_prepared: Prepared,
    tiny_model: AutoEncoder,
    tiny_chains: Chains,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The exported folder; copy it before you change it."""
    models = tmp_path_factory.mktemp("models")
    return export(tiny_recipe, tiny_prepared, tiny_model, tiny_chains, models, [], manifests.read)


@pytest.fixture(scope="session")
def tiny_served(tiny_artefact: Path) -> Model:
    return Model.open(tiny_artefact, threads=1)
