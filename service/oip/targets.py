"""What can be asked of a model, and under which name.

    name            reconstruction, as POST /reconstruct, in the units of the data
    name:graph      a graph as it stands in the artefact, in the model's units
    name:chain      samples: a sequence is a chain

A model's name holds no colon, so that the three cannot be confused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from localmoments.arrays import FARTHEST
from localmoments.artefact import Manifest, Shape
from localmoments.errors import InputError, UnknownModelError
from localmoments.model import Model
from service.engine.repository import Catalogue
from service.oip.schemas import InferParameters
from service.oip.tensors import DATATYPES, Spec

CHAIN = "chain"
LEVEL = "sigma"  # the input that a graph does without: the model has a noise level of its own
COMMON = frozenset({"binary_data_output", "timeout", "priority"})
NO_SEQUENCE = frozenset({"sequence_id", "sequence_start", "sequence_end"})
PARAMETERS = {
    "reconstruct": COMMON | {"sigma"},
    "graph": COMMON,
    "chain": frozenset(InferParameters.model_fields) - {"sigma"},
}


@dataclass(frozen=True)
class Surface:
    """One thing to ask, with what it takes and gives."""

    name: str
    kind: Literal["reconstruct", "graph", "chain"]
    model: Model
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    graph: str = ""

    @property
    def model_name(self) -> str:
        """Without what stands behind the colon."""
        return self.model.manifest.name

    def check(
        self, said: InferParameters, inputs: Iterable[str], outputs: Sequence[str]
    ) -> None:  # fmt: skip
        """Refuse names that mean nothing here."""
        _check_names(self.name, "takes no input", set(inputs), self.inputs)
        _check_names(self.name, "gives no output", set(outputs), self.outputs)
        missing = [s.name for s in self.inputs if not s.optional and s.name not in inputs]
        if missing:
            raise InputError(f"{self.name} needs the input {missing[0]}.")
        spare = said.model_fields_set - PARAMETERS[self.kind]
        if not said.sequence_id and self.kind != CHAIN:
            spare -= NO_SEQUENCE  # 0 and an empty text say that there is none
        if spare:
            first = next(name for name in InferParameters.model_fields if name in spare)
            raise InputError(f"{self.name} has no parameter {first}{self._hint(first)}.")

    def _hint(self, parameter: str) -> str:
        return f"; {self.model_name}:{CHAIN} has" if parameter in PARAMETERS[CHAIN] else ""


def _check_names(name: str, what: str, asked: set[str], there: Sequence[Spec]) -> None:
    known = [spec.name for spec in there]
    unknown = asked - set(known)
    if unknown:
        offered = ", ".join(known) or "none"
        raise InputError(f"{name} {what} {min(unknown)[:50]!r}; there is {offered}.")


def find(served: Catalogue, name: str, version: str | None = None) -> Surface:
    """By the name of a path, and the version of it, if one is named."""
    base, colon, part = name.partition(":")
    model = served.find(base if version is None else f"{base}@{version}")
    if not colon:
        return _reconstruction(name, model)
    if part == CHAIN:
        return _chain(name, model)
    if part not in model.manifest.graphs:
        there = ", ".join([*model.manifest.graphs, CHAIN])
        raise UnknownModelError(f"{base} has nothing called {part[:50]!r}; it has {there}.")
    return _graph(name, model, part)


def names(manifest: Manifest) -> list[str]:
    """All that can be asked of a model."""
    return [manifest.name, *(f"{manifest.name}:{part}" for part in (*manifest.graphs, CHAIN))]


def _datatype(model: Model) -> str:
    """What holds the user's units without loss."""
    return DATATYPES[np.dtype(model.manifest.normaliser.dtype)]


def _reconstruction(name: str, model: Model) -> Surface:
    datatype, rows = _datatype(model), ("batch", model.manifest.input_dims)
    outputs = Spec("reconstruction", datatype, rows), Spec("error", "FP64", ("batch",))
    return Surface(name, "reconstruct", model, (Spec("x", datatype, rows),), outputs)


def _graph(name: str, model: Model, graph: str) -> Surface:
    entry = model.manifest.graphs[graph]

    def spec(tensor: str, shape: Shape) -> Spec:
        return Spec(tensor, "FP32", shape, optional=tensor == LEVEL, most=FARTHEST)

    inputs = tuple(spec(tensor, shape) for tensor, shape in entry.inputs.items())
    outputs = tuple(spec(tensor, shape) for tensor, shape in entry.outputs.items())
    return Surface(name, "graph", model, inputs, outputs, graph)


def _chain(name: str, model: Model) -> Surface:
    datatype, d = _datatype(model), model.manifest.input_dims
    start = Spec("start", datatype, ("points", d), optional=True)
    return Surface(
        name, "chain", model, (start,), (Spec("samples", datatype, ("kept", "walkers", d)),)
    )
