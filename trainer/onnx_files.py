"""ONNX files whose weights lie in weights.safetensors, and the proof that they compute the same.

ONNX's external data may point into any file by offset, and safetensors keeps its tensors as the
same raw little-endian bytes, so all graphs share one weights file and it is stored once.
"""

import json
import logging
import struct
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx.external_data_helper import set_external_data
from onnxscript import optimizer

from localmoments.artefact import WEIGHTS
from localmoments.signals import held_back
from trainer.errors import ExportError
from trainer.graphs import BATCH, PROBES, GraphSpec
from trainer.interrupts import INTERRUPT

OPSET = 20
TOLERANCE = 1e-4
CHECKED_BATCHES = (1, 2, 37, 1000)
LARGEST_CONSTANT = 64  # numbers that may be folded into a graph: never a weight
PREFIX = "ae."  # where a graph's module keeps the auto-encoder


def write_graph(name: str, spec: GraphSpec, folder: Path) -> Path:
    """Export a graph next to the weights that it points into, and check it."""
    INTERRUPT.check()
    with held_back():
        model = _exported(spec)
    offsets = weight_offsets(folder / WEIGHTS)
    for tensor in model.graph.initializer:
        _point_at_weights(tensor, offsets)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path))
    check_parity(name, spec, path)
    return path


def _exported(spec: GraphSpec) -> onnx.ModelProto:
    axes = {BATCH: torch.export.Dim(BATCH, min=1), PROBES: torch.export.Dim(PROBES, min=1)}
    shapes = tuple(
        {i: axes[s] for i, s in enumerate(shape) if isinstance(s, str)}
        for shape in spec.inputs.values()
    )
    logging.getLogger("torch.onnx._internal.exporter").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations, not ours
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
            raise ExportError("torch gave no ONNX program back.")
        optimizer.optimize_ir(program.model, input_size_limit=LARGEST_CONSTANT)
    return _stripped(program.model_proto)


def _stripped(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without the exporter's notes, which hold stack traces and local paths."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    graph = model.graph
    for item in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del item.metadata_props[:]
        item.doc_string = ""
    return model


def weight_offsets(path: Path) -> dict[str, tuple[int, int]]:
    """(offset, length) in the file of every tensor of a safetensors file."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    at = {name: entry["data_offsets"] for name, entry in header.items()}
    return {name: (8 + size + begin, end - begin) for name, (begin, end) in at.items()}


def _point_at_weights(tensor: onnx.TensorProto, offsets: dict[str, tuple[int, int]]) -> None:
    """Replace a weight's bytes by where they lie; small constants of the graph stay inside."""
    name = tensor.name.removeprefix(PREFIX)
    if name not in offsets:
        if len(tensor.raw_data) > 4096:
            raise ExportError(f"The exporter made a large constant, {tensor.name}, of its own.")
        return
    offset, length = offsets[name]
    if len(tensor.raw_data) != length:
        raise ExportError(f"The exporter altered the weight {name}.")
    set_external_data(tensor, WEIGHTS, offset, length)
    tensor.ClearField("raw_data")


def check_parity(name: str, spec: GraphSpec, path: Path) -> float:
    """The largest difference between onnxruntime and PyTorch over batches of 1 to 1000 rows.

    Relative to the size of the values where that is above one; more than TOLERANCE is refused.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch in CHECKED_BATCHES:
        inputs = spec.example(batch, probes=1 + batch % 2, seed=batch)
        with torch.no_grad():
            expected = spec.module(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        feed = {k: v.numpy() for k, v in zip(spec.inputs, inputs, strict=True)}
        for want, got in zip(expected, session.run(list(spec.outputs), feed), strict=True):
            size = max(1.0, float(want.abs().max()))
            difference = np.abs(got - want.numpy()).max() / size
            worst = float(np.maximum(worst, difference))  # unlike max(), keeps a NaN
    if not worst <= TOLERANCE:
        raise ExportError(
            f"The exported graph {name} differs from PyTorch by {worst:.2g}, more than {TOLERANCE}."
        )
    return worst
