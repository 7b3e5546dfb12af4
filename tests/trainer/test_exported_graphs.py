"""Exported graphs: the same numbers as PyTorch, the weights stored once, nothing private inside.

An export takes about a second, so each architecture exports only the graphs that differ most;
the tiny artefact has every one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from safetensors.torch import load_file, save_file

from localmoments.artefact import START_POINTS, WEIGHTS
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import make_kernels
from trainer.errors import ExportError
from trainer.export import ChainSetup
from trainer.graphs import (
    OPSET,
    TOLERANCE,
    GraphSpec,
    check_parity,
    kernel_graph,
    model_graphs,
    weight_offsets,
    write_graph,
)

Maker = Callable[..., AutoEncoder]

LARGEST_CONSTANT = 64  # elements of a constant inside a graph: sizes, factors, frequencies


@dataclass(frozen=True)
class Exported:
    folder: Path
    specs: Mapping[str, GraphSpec]


def exported(folder: Path, ae: AutoEncoder, names: list[str], root: str = "auto") -> Exported:
    save_file(ae.state_dict(), folder / WEIGHTS)
    specs = model_graphs(ae)
    specs |= {name: kernel_graph(k) for name, k in make_kernels(ae, 0.5, root).items()}
    chosen = {name: specs[name] for name in names}
    for name, spec in chosen.items():
        write_graph(name, spec, folder)
    return Exported(folder, chosen)


CASES: dict[str, tuple[Architecture, list[str], str]] = {
    "tied, exact root": (
        Architecture(40, (50,), "sigmoid", tied=True), ["moments", "gibbs", "hidden"], "auto",
    ),
    "deep": (
        Architecture(6, (10, 8), "tanh", "sigmoid"), ["encoder_jacobian", "jacobian"], "auto",
    ),
    "deep tied, polynomial root": (
        Architecture(5, (7, 4), "softplus", "sigmoid", tied=True), ["moment"], "polynomial",
    ),
    "linear": (Architecture(6, (4,), "linear"), ["decode", "walkjump"], "auto"),
    "a table, residual and conditioned": (
        Architecture(10, (128,), "silu", blocks=1, conditioned=True), ["moments", "gibbs"], "auto",
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest, make_ae: Maker, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    architecture, names, root = CASES[request.param]
    return exported(tmp_path_factory.mktemp("graphs"), make_ae(architecture), names, root)


@pytest.fixture(scope="module")
def artefact(tiny_artefact: Path, tiny_model: AutoEncoder, tiny_chains: ChainSetup) -> Exported:
    """All eleven graphs of one model."""
    kernels = {name: kernel_graph(kernel) for name, kernel in tiny_chains.kernels.items()}
    return Exported(tiny_artefact, model_graphs(tiny_model) | kernels)


def difference(made: Exported, name: str, batch: int, probes: int) -> float:
    spec = made.specs[name]
    inputs = spec.example(batch, probes, seed=17)
    with torch.no_grad():
        expected = spec.module(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    session = ort.InferenceSession(
        str(made.folder / f"{name}.onnx"), providers=["CPUExecutionProvider"]
    )
    feed = {k: v.numpy() for k, v in zip(spec.inputs, inputs, strict=True)}
    got = session.run(list(spec.outputs), feed)
    away = [np.abs(g - e.numpy()).max() for g, e in zip(got, expected, strict=True)]
    return float(np.max(away))  # NaN where there is one


def assert_parity(made: Exported) -> None:
    for name in made.specs:
        for batch, probes in ((1, 1), (2, 5), (7, 1), (64, 3), (1000, 2)):
            assert difference(made, name, batch, probes) <= TOLERANCE


def test_graphs_match_pytorch_for_any_batch_and_number_of_probes(case: Exported) -> None:
    assert_parity(case)


def test_every_graph_of_an_artefact_matches_pytorch(artefact: Exported) -> None:
    assert {f"{name}.onnx" for name in artefact.specs} == {
        p.name for p in artefact.folder.glob("*.onnx")
    }
    assert_parity(artefact)


def is_identity(t: np.ndarray) -> bool:
    return t.ndim == 2 and t.shape[0] == t.shape[1] and bool((t == np.eye(len(t))).all())


def assert_weights_stored_once(made: Exported) -> None:
    """Every tensor of a weight's size points into the one file, at that weight's own bytes."""
    spans = set(weight_offsets(made.folder / WEIGHTS).values())
    for name in made.specs:
        path = made.folder / f"{name}.onnx"
        model = onnx.load(str(path), load_external_data=False)
        inside = [t for t in model.graph.initializer if not t.external_data]
        own = [onnx.numpy_helper.to_array(t) for t in inside]
        kept = [t for t in own if not is_identity(t)]  # those of the root `matrix`
        assert max((t.size for t in kept), default=0) <= LARGEST_CONSTANT
        pointers = [
            {e.key: e.value for e in t.external_data}
            for t in model.graph.initializer
            if t.external_data
        ]
        assert pointers and {p["location"] for p in pointers} == {WEIGHTS}
        assert {(int(p["offset"]), int(p["length"])) for p in pointers} <= spans
        assert path.stat().st_size < 40_000


def test_weights_are_stored_once(case: Exported) -> None:
    assert_weights_stored_once(case)


def test_an_artefacts_weights_are_stored_once(artefact: Exported, tiny_model: AutoEncoder) -> None:
    assert_weights_stored_once(artefact)
    stored = load_file(artefact.folder / WEIGHTS)
    assert set(stored) == set(tiny_model.state_dict()) | {START_POINTS}


def test_graphs_contain_no_stack_traces_and_no_local_paths(case: Exported) -> None:
    for name in case.specs:
        content = (case.folder / f"{name}.onnx").read_bytes()
        for private in (b"Traceback", b"stack_trace", b".py", b"/work", b"/tmp", b"site-packages"):
            assert private not in content
        model = onnx.load(str(case.folder / f"{name}.onnx"), load_external_data=False)
        assert not model.metadata_props and not model.graph.metadata_props
        assert not any(n.metadata_props or n.doc_string for n in model.graph.node)
        assert {o.domain: o.version for o in model.opset_import}[""] == OPSET


def test_offsets_are_where_safetensors_itself_reads(tmp_path: Path) -> None:
    tensors = {"b": torch.randn(3, 4), "a": torch.randn(5), "c": torch.zeros(0, 2)}
    save_file(tensors, tmp_path / WEIGHTS, {"note": "metadata"})
    content = (tmp_path / WEIGHTS).read_bytes()
    offsets = weight_offsets(tmp_path / WEIGHTS)
    assert set(offsets) == set(tensors)
    for name, (at, length) in offsets.items():
        assert content[at : at + length] == tensors[name].numpy().tobytes()


@pytest.fixture
def small(tmp_path: Path, make_ae: Maker) -> Exported:
    return exported(tmp_path, make_ae(Architecture(6, (10,), "tanh")), ["reconstruct"])


@pytest.mark.parametrize("name", ["encoder.0.weight", "decoder.0.bias"])
def test_altered_weights_are_refused(small: Exported, name: str) -> None:
    path, spec = small.folder / "reconstruct.onnx", small.specs["reconstruct"]
    assert check_parity("reconstruct", spec, path) <= TOLERANCE
    tensors = load_file(small.folder / WEIGHTS)
    tensors[name].view(-1)[0] += 0.01
    save_file(tensors, small.folder / WEIGHTS)
    with pytest.raises(ExportError, match=r"reconstruct differs from PyTorch by .* 0\.0001\.$"):
        check_parity("reconstruct", spec, path)


def test_weights_that_are_not_numbers_are_refused(small: Exported) -> None:
    tensors = load_file(small.folder / WEIGHTS)
    tensors["encoder.0.weight"].fill_(float("nan"))
    save_file(tensors, small.folder / WEIGHTS)
    with pytest.raises(ExportError, match="differs"):
        check_parity("reconstruct", small.specs["reconstruct"], small.folder / "reconstruct.onnx")
