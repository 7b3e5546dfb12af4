"""A model's configuration in the words of Triton's clients."""

from typing import Any

from service.oip.schemas import ConfiguredInput, ConfiguredOutput, ModelConfiguration, Reshape, Text
from service.oip.targets import CHAIN, Surface
from service.oip.tensors import Spec

PLATFORM, BACKEND = "onnxruntime_onnx", "onnxruntime"


def configured(surface: Surface, rows: int) -> ModelConfiguration:
    """Where rows are batched, the first axis is not told among a tensor's sizes."""
    chain = surface.kind == CHAIN
    skipped = 0 if chain else 1
    return ModelConfiguration(
        name=surface.name,
        platform=PLATFORM,
        backend=BACKEND,
        max_batch_size=0 if chain else rows,
        input=[
            ConfiguredInput(**_told(spec, skipped), optional=spec.optional)
            for spec in surface.inputs
        ],
        output=[ConfiguredOutput(**_told(spec, skipped)) for spec in surface.outputs],
        parameters={"units": Text(string_value="model" if surface.kind == "graph" else "data")},
        **({"sequence_batching": {}} if chain else {"dynamic_batching": {}}),
    )


def _told(spec: Spec, skipped: int) -> dict[str, Any]:
    sizes = spec.sizes[skipped:]
    told = {"name": spec.name, "data_type": f"TYPE_{spec.datatype}", "dims": sizes or [1]}
    return told if sizes else {**told, "reshape": Reshape(shape=[])}
