"""The ONNX graphs of an artefact: what each computes, how it is written, and how it is checked.

Besides the steps of the kernels, an artefact has these graphs:

    reconstruct        x -> mean r(x)
    encode, decode     x -> hidden f(x);  hidden h -> mean g(h)
    moments            x, v -> mean r(x), products A v with A = (J + Jᵀ)/2
    jacobian           x, v, w -> J v, Jᵀ w
    encoder_jacobian   x, v, w -> J_f v, J_fᵀ w

v and w hold k vectors per row. ONNX has no eigendecomposition, so localmoments.estimators computes
the local moments from `moments`. The graphs of a conditioned model also take one noise level per
row, sigma.

All graphs share one copy of the weights. ONNX external data can point into any file by offset, and
safetensors stores tensors as the same raw little-endian bytes, so the graphs point into
weights.safetensors.
"""

import json
import logging
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx.external_data_helper import set_external_data
from onnxscript import optimizer
from torch import Tensor, nn

from localmoments.artefact import WEIGHTS, Shape
from localmoments.cpus import available_cpus
from localmoments.signals import delay_signals
from trainer.autoencoder import AutoEncoder
from trainer.chain_kernels import Kernel
from trainer.errors import ExportError
from trainer.interrupts import INTERRUPT

BATCH, PROBES = "batch", "probes"  # names of the dynamic axes
OPSET = 20
TOLERANCE = 1e-4  # largest difference between onnxruntime and PyTorch
CHECKED_BATCHES = (1, 2, 37, 1000)
LARGEST_CONSTANT = 64  # elements of a constant that may be folded into a graph: never a weight
PREFIX = "ae."  # of the weights' names in a graph: the module keeps the auto-encoder there


@dataclass(frozen=True)
class GraphSpec:
    """A module to export, with the names and shapes of its inputs and outputs."""

    module: nn.Module
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]

    def example(self, batch: int, probes: int = 2, seed: int = 0) -> tuple[Tensor, ...]:
        """Random inputs with these sizes of the dynamic axes; sigma and scale are positive."""
        g = torch.Generator().manual_seed(seed)
        sizes = {BATCH: batch, PROBES: probes}
        tensors = []
        for name, shape in self.inputs.items():
            concrete = [s if isinstance(s, int) else sizes[s] for s in shape]
            x = torch.randn(concrete, generator=g)
            tensors.append(x.abs().clamp(0.1, 1.0) if name in ("sigma", "scale") else x)
        return tuple(tensors)


class _Graph(nn.Module):
    """A function of the auto-encoder as a module."""

    def __init__(self, ae: AutoEncoder) -> None:
        super().__init__()
        self.ae = ae


class Reconstruct(_Graph):
    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        mean: Tensor = self.ae(x, sigma)
        return mean


class Encode(_Graph):
    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        return self.ae.encode(x, sigma)


class Decode(_Graph):
    def forward(self, hidden: Tensor, sigma: Tensor | None = None) -> Tensor:
        return self.ae.decode(hidden, sigma)


class Moments(_Graph):
    def forward(self, x: Tensor, v: Tensor, sigma: Tensor | None = None) -> tuple[Tensor, ...]:
        at = self.ae.push(x, v, sigma)
        return at.value, (at.tangents + at.vjp(v)) / 2


class Jacobian(_Graph):
    def forward(
        self, x: Tensor, v: Tensor, w: Tensor, sigma: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        at = self.ae.push(x, v, sigma)
        return at.tangents, at.vjp(w)


class EncoderJacobian(_Graph):
    def forward(
        self, x: Tensor, v: Tensor, w: Tensor, sigma: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        at = self.ae.push_encoder(x, v, sigma)
        return at.tangents, at.vjp(w)


def model_graphs(ae: AutoEncoder) -> dict[str, GraphSpec]:
    """All graphs of a model except the steps of its kernels, by name."""
    d, m = ae.architecture.dims, ae.architecture.hidden[-1]
    level: dict[str, Shape] = {"sigma": (BATCH, 1)} if ae.architecture.conditioned else {}
    x: dict[str, Shape] = {"x": (BATCH, d)}
    v: dict[str, Shape] = {"v": (BATCH, PROBES, d)}
    mean: dict[str, Shape] = {"mean": (BATCH, d)}
    products: dict[str, Shape] = {"products": (BATCH, PROBES, d)}
    hidden: dict[str, Shape] = {"hidden": (BATCH, m)}
    graphs = {
        "reconstruct": GraphSpec(Reconstruct(ae), x | level, mean),
        "encode": GraphSpec(Encode(ae), x | level, hidden),
        "decode": GraphSpec(Decode(ae), hidden | level, mean),
        "moments": GraphSpec(Moments(ae), x | v | level, mean | products),
    }
    for name, module, n in (("jacobian", Jacobian, d), ("encoder_jacobian", EncoderJacobian, m)):
        into: dict[str, Shape] = {"w": (BATCH, PROBES, n)}
        out: dict[str, Shape] = {"jvp": (BATCH, PROBES, n), "vjp": (BATCH, PROBES, d)}
        graphs[name] = GraphSpec(module(ae), x | v | into | level, out)
    return graphs


def kernel_graph(kernel: Kernel) -> GraphSpec:
    """The graph of a kernel's step."""
    a = kernel.ae.architecture
    n = a.hidden[-1] if kernel.space == "hidden" else a.dims
    return GraphSpec(
        kernel,
        {"state": (BATCH, n), "noise": (BATCH, kernel.noise), "scale": (BATCH, 1)},
        {"next": (BATCH, n), "mean": (BATCH, a.dims)},
    )


def write_graph(name: str, spec: GraphSpec, folder: Path) -> Path:
    """Export a graph into the folder of its weights, and check it against PyTorch.

    Raises:
        ExportError: if the graph cannot be exported or computes something else.
    """
    INTERRUPT.check()
    with delay_signals():
        model = _to_onnx(spec)
    offsets = weight_offsets(folder / WEIGHTS)
    for tensor in model.graph.initializer:
        _point_at_weights(tensor, offsets)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path))
    check_parity(name, spec, path)
    return path


def _to_onnx(spec: GraphSpec) -> onnx.ModelProto:
    axes = {BATCH: torch.export.Dim(BATCH, min=1), PROBES: torch.export.Dim(PROBES, min=1)}
    shapes = tuple(
        {i: axes[s] for i, s in enumerate(shape) if isinstance(s, str)}
        for shape in spec.inputs.values()
    )
    logging.getLogger("torch.onnx._internal.exporter").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside torch's exporter
        program = torch.onnx.export(
            spec.module.eval(),
            spec.example(batch=3, probes=2),
            dynamo=True,
            input_names=list(spec.inputs),
            output_names=list(spec.outputs),
            dynamic_shapes=shapes,
            opset_version=OPSET,
            verbose=False,
            optimize=False,
        )
        if program is None:
            raise ExportError("torch.onnx.export returned no program.")
        optimizer.optimize_ir(program.model, input_size_limit=LARGEST_CONSTANT)
    return _strip_metadata(program.model_proto)


def _strip_metadata(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove the metadata of the exporter, which contains stack traces and local paths."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    graph = model.graph
    for item in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del item.metadata_props[:]
        item.doc_string = ""
    return model


def weight_offsets(path: Path) -> dict[str, tuple[int, int]]:
    """The offset and length in bytes of every tensor in a safetensors file."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    at = {name: entry["data_offsets"] for name, entry in header.items()}
    return {name: (8 + size + begin, end - begin) for name, (begin, end) in at.items()}


def _point_at_weights(tensor: onnx.TensorProto, offsets: dict[str, tuple[int, int]]) -> None:
    """Replace the bytes of a weight by their place in the file; keep small constants."""
    name = tensor.name.removeprefix(PREFIX)
    if name not in offsets:
        if len(tensor.raw_data) > 4096:
            raise ExportError(f"The exporter added a large constant, {tensor.name}.")
        return
    offset, length = offsets[name]
    if len(tensor.raw_data) != length:
        raise ExportError(f"The exporter changed the weight {name}.")
    set_external_data(tensor, WEIGHTS, offset, length)
    tensor.ClearField("raw_data")


def check_parity(name: str, spec: GraphSpec, path: Path) -> float:
    """Compare a graph in onnxruntime with PyTorch on batches of 1 to 1000 rows.

    Returns:
        The largest difference, relative to the largest value if that is above 1.

    Raises:
        ExportError: if the difference exceeds TOLERANCE.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = available_cpus()
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch in CHECKED_BATCHES:
        inputs = spec.example(batch, probes=1 + batch % 2, seed=batch)
        with torch.no_grad():
            expected = spec.module(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        feed = {k: v.numpy() for k, v in zip(spec.inputs, inputs, strict=True)}
        for right, got in zip(expected, session.run(list(spec.outputs), feed), strict=True):
            size = max(1.0, float(right.abs().max()))
            difference = np.abs(got - right.numpy()).max() / size
            worst = float(np.maximum(worst, difference))  # unlike max(), keeps a NaN
    if not worst <= TOLERANCE:
        raise ExportError(
            f"The exported graph {name} differs from PyTorch by {worst:.2g}, more than {TOLERANCE}."
        )
    return worst
