"""Models in closed form: r(x) = m + A (x - m), served by the engine."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from localmoments.artefact import START_POINTS, WEIGHTS, Graph
from localmoments.columns import Normaliser
from localmoments.model import Model
from service.engine.batcher import Batcher
from service.engine.executor import Executor
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.graphs import model_graphs, write_graph

GRAPHS = ("reconstruct", "moments", "jacobian")


@pytest.fixture(scope="session")
def make_linear(
    tiny_served: Model, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Model]:
    """From m (d,), the eigenvalues a (d,) and eigenvectors Q of A; other facts by name."""

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
        for name in GRAPHS:
            spec = model_graphs(ae)[name]
            graphs[name] = Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
        units = Normaliser(np.zeros(d), np.ones(d) if scale is None else np.asarray(scale, float))
        own = {"graphs": graphs, "input_dims": d, "noise_levels": None, "normaliser": units}
        return Model(folder, replace(tiny_served.manifest, **own, **facts), threads=1)

    return make


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor(Batcher(256, 8192))
    yield executor
    executor.close()
