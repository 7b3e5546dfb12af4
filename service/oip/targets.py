"""Find what a model name of the protocol refers to.

    name            reconstruction, as POST /reconstruct, in the units of the data
    name:graph      a graph of the artefact, unchanged, in the model's units

Model names contain no colon, so the two cannot be confused.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fastapi import Path

from localmoments.arrays import FARTHEST
from localmoments.artefact import Manifest, Shape
from localmoments.errors import InputError, UnknownModelError
from localmoments.model import Model
from service.engine.repository import Catalogue
from service.oip.schemas import InferRequest
from service.oip.tensors import DATATYPE_NAMES, TensorSpec

NOISE_LEVEL = "sigma"  # optional input of a graph: by default, the model's own noise level

ModelName = Annotated[
    str,
    Path(alias="model", description="`name` for reconstruction, `name:graph` for one graph."),
]
Version = Annotated[str, Path(alias="version", description="Version of the model.")]


@dataclass(frozen=True)
class Target:
    """Something that infer can run, with the tensors that it takes and returns."""

    name: str  # as in the path
    model: Model
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    graph: str | None = None  # None: reconstruction

    def check(self, body: InferRequest, inputs: Collection[str]) -> None:
        """Raise InputError if the request names tensors or parameters that do not exist here."""
        self._check_names("input", inputs, self.inputs)
        self._check_names("output", [output.name for output in body.outputs], self.outputs)
        missing = [s.name for s in self.inputs if not s.optional and s.name not in inputs]
        if missing:
            raise InputError(f"{self.name} needs the input {missing[0]}.")
        if self.graph and body.parameters.sigma is not None:
            raise InputError(f"{self.name} has no parameter sigma. Send the input sigma instead.")

    def _check_names(
        self, kind: str, names: Collection[str], specs: tuple[TensorSpec, ...]
    ) -> None:
        known = [spec.name for spec in specs]
        unknown = set(names) - set(known)
        if unknown:
            raise InputError(
                f"{self.name} has no {kind} {min(unknown)[:50]!r}; it has {', '.join(known)}."
            )


def find_target(catalogue: Catalogue, name: str, version: str | None = None) -> Target:
    """Return the target of a model name; without a version, that of the newest.

    Raises UnknownModelError if there is no such model, version or graph.
    """
    model_name, colon, graph = name.partition(":")
    model = catalogue.find(model_name if version is None else f"{model_name}@{version}")
    if not colon:
        return _make_reconstruction(name, model)
    if graph not in model.manifest.graphs:
        graphs = ", ".join(model.manifest.graphs)
        raise UnknownModelError(f"{model_name} has no graph {graph[:50]!r}; it has {graphs}.")
    return _make_graph(name, model, graph)


def list_names(manifest: Manifest) -> list[str]:
    """Return the names of all targets of a model."""
    return [manifest.name, *(f"{manifest.name}:{graph}" for graph in manifest.graphs)]


def _make_reconstruction(name: str, model: Model) -> Target:
    # The dtype that represents values in the user's units without loss.
    datatype = DATATYPE_NAMES[np.dtype(model.manifest.normaliser.dtype)]
    rows = ("batch", model.manifest.input_dims)
    outputs = TensorSpec("reconstruction", datatype, rows), TensorSpec("error", "FP64", ("batch",))
    return Target(name, model, (TensorSpec("x", datatype, rows),), outputs)


def _make_graph(name: str, model: Model, graph: str) -> Target:
    def make_spec(tensor: str, shape: Shape) -> TensorSpec:
        return TensorSpec(tensor, "FP32", shape, optional=tensor == NOISE_LEVEL, limit=FARTHEST)

    entry = model.manifest.graphs[graph]
    inputs = tuple(make_spec(tensor, shape) for tensor, shape in entry.inputs.items())
    outputs = tuple(make_spec(tensor, shape) for tensor, shape in entry.outputs.items())
    return Target(name, model, inputs, outputs, graph)
