"""Eigenpairs at many points, of a model whose A is known: r(x) = m + A (x - m)."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from service.core.manifest import WEIGHTS, Graph
from service.core.moments import local_moments
from service.engine.batcher import Batcher
from service.engine.model import Model
from service.engine.spectra import leading_spectra, whole_spectra
from service.engine.worker import Worker
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.graphs import model_graphs
from trainer.onnx_files import write_graph

D, ALPHA = 200, 0.25


@pytest.fixture(scope="module")
def a() -> Any:
    """Eigenvalues of A: a few that stand out, and many small ones that add up."""
    return np.concatenate([np.linspace(0.95, 0.7, 9), np.linspace(0.4, 0.1, D - 9)])


@pytest.fixture(scope="module")
def Q() -> Any:
    return np.linalg.qr(np.random.default_rng(0).standard_normal((D, D)))[0]


@pytest.fixture(scope="module")
def m() -> Any:
    return np.random.default_rng(1).standard_normal(D)


@pytest.fixture(scope="module")
def wide(
    a: Any, Q: Any, m: Any, tiny_served: Model, tmp_path_factory: pytest.TempPathFactory
) -> Model:
    """One tied linear layer, W = diag(√a) Qᵀ: the two graphs that are asked for here."""
    folder = tmp_path_factory.mktemp("wide")
    ae = AutoEncoder(Architecture(D, (D,), "linear", "linear", tied=True)).eval()
    weights = {
        "encoder.0.weight": np.sqrt(a)[:, None] * Q.T,
        "encoder.0.bias": np.zeros(D),
        "decoder.0.bias": m - (Q * a) @ Q.T @ m,
    }
    ae.load_state_dict({k: torch.tensor(v, dtype=torch.float32) for k, v in weights.items()})
    save_file({k: v.contiguous() for k, v in ae.state_dict().items()}, folder / WEIGHTS)
    graphs = {}
    for name in ("reconstruct", "moments"):
        spec = model_graphs(ae)[name]
        graphs[name] = Graph(write_graph(name, spec, folder).name, spec.inputs, spec.outputs)
    manifest = replace(tiny_served.manifest, graphs=graphs, input_dims=D, noise_levels=None)
    return Model(folder, manifest, threads=1)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(Batcher(256, 8192))
    yield worker
    worker.close()


@pytest.fixture
def z() -> Any:
    return np.random.default_rng(3).standard_normal((7, D)).astype(np.float32)


def test_the_whole_spectrum_is_that_of_a(
    worker: Worker, wide: Model, z: Any, a: Any, Q: Any, m: Any
) -> None:
    r, spectra = asyncio.run(whole_spectra(worker, wide, z, None))
    np.testing.assert_allclose(r, m + (z - m) @ (Q * a) @ Q.T, atol=1e-4)
    for spectrum in spectra:
        np.testing.assert_allclose(spectrum.eigenvalues, a, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 4, 9])
def test_leading_pairs_of_all_points_are_those_of_a(
    worker: Worker, wide: Model, z: Any, a: Any, Q: Any, rank: int
) -> None:
    _, spectra = asyncio.run(leading_spectra(worker, wide, z, None, rank))
    assert len(spectra) == 7
    for spectrum in spectra:
        top = spectrum.leading(rank)
        np.testing.assert_allclose(top.eigenvalues, a[:rank], rtol=1e-5)
        U, V = Q[:, :rank], top.vectors
        assert np.linalg.norm(U - V.T @ (V @ U), 2) < 1e-3  # sine of the largest angle


def test_points_whose_space_is_settled_leave_the_calls(
    worker: Worker, wide: Model, z: Any, m: Any
) -> None:
    """At m itself r - z = 0, so that its space is another one than the rest's."""
    rows: list[int] = []

    class Watched(Model):
        def run(self, graph: str, **inputs: Any) -> Any:
            rows.append(len(inputs["x"])) if graph == "moments" else None
            return super().run(graph, **inputs)

    model = Watched(wide.folder, wide.manifest, threads=1)
    asyncio.run(leading_spectra(worker, model, np.vstack([z, m[None].astype(np.float32)]), None, 9))
    assert rows == sorted(rows, reverse=True) and len(rows) < 24


def test_the_inverted_mean_does_not_need_every_pair(
    worker: Worker, wide: Model, z: Any, m: Any
) -> None:
    """(I - A)⁻¹ (r - z) = m - z, to 2 % from half of the dimensions, because r - z is in them."""
    r, spectra = asyncio.run(leading_spectra(worker, wide, z, None, 1))
    for row, mean, spectrum in zip(z, r, spectra, strict=True):
        assert len(spectrum.eigenvalues) <= D / 2
        got = local_moments(row, mean, spectrum, ALPHA, "inverted").mean
        assert np.linalg.norm(got - m) < 0.02 * np.linalg.norm(row - m)


def test_a_point_gets_the_same_bits_alone_or_with_others(
    worker: Worker, wide: Model, z: Any
) -> None:
    _, many = asyncio.run(leading_spectra(worker, wide, z, None, 3))
    _, [alone] = asyncio.run(leading_spectra(worker, wide, z[4:5], None, 3))
    assert np.array_equal(alone.eigenvalues, many[4].eigenvalues)
    assert np.array_equal(alone.vectors, many[4].vectors)
