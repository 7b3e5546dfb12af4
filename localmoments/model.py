"""A verified artefact whose graphs onnxruntime can run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from localmoments import artefact as manifests
from localmoments.arrays import Floats
from localmoments.artefact import Manifest
from localmoments.errors import ArtefactError
from localmoments.providers import CPU, MEMORY, Device, bound_run, open_session

Arrays = dict[str, Floats]
CARD = "card.md"

NEWEST_OPSET = 23  # what the lowest onnxruntime that we allow can run


class Model:
    """Graphs of one artefact; a session is opened when its graph is first asked for."""

    def __init__(
        self, folder: Path, manifest: Manifest, *, threads: int = 0, device: Device | None = None
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._threads = threads
        self._device = device or Device()
        self._sessions: dict[str, ort.InferenceSession] = {}
        self._sound: set[str] = set()  # graphs that were opened once
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: Path, *, threads: int = 0, device: Device | None = None) -> Model:
        """Read the manifest, check every file's sha256, and trust the folder from then on."""
        manifest = manifests.read(folder)
        if manifest.opset > NEWEST_OPSET:
            raise ArtefactError(
                f"{folder} needs ONNX opset {manifest.opset}; the engine runs up to {NEWEST_OPSET}."
            )
        manifests.verify(folder, manifest)
        return cls(folder, manifest, threads=threads, device=device)

    @property
    def provider(self) -> str:
        """What its graphs run on, and before one was opened what they are meant for."""
        return self._device.provider

    def check(self, *graphs: str) -> None:
        """Open these graphs and let go of them: a fault is found before anyone asks, and a model
        that nobody asks takes no memory for its weights."""
        for graph in graphs:
            if graph not in self.manifest.graphs:
                raise ArtefactError(f"{self.folder} has no graph named {graph!r}.")
            if graph not in self._sound:
                self._open_session(graph)
                self._sound.add(graph)

    def prepare(self) -> None:
        """Open what most requests need, so that the first of them does not wait for it."""
        kernel = self.manifest.kernels[self.manifest.default_kernel]
        for graph in ("reconstruct", kernel.graph):
            self.session(graph)

    def run(self, graph: str, **inputs: NDArray[np.float32]) -> Arrays:
        """One pass of a graph: named arrays in, named arrays out."""
        session = self.session(graph)
        names = list(self.manifest.graphs[graph].outputs)
        if self.provider == CPU:  # where arrays lie at the right place already
            arrays = session.run(names, inputs)
        else:
            arrays = bound_run(session, names, inputs, MEMORY[self.provider])
        return dict(zip(names, arrays, strict=True))

    def session(self, graph: str) -> ort.InferenceSession:
        with self._lock:
            if graph not in self._sessions:
                self._sessions[graph] = self._open_session(graph)
            return self._sessions[graph]

    def _open_session(self, graph: str) -> ort.InferenceSession:
        entry = self.manifest.graphs[graph]
        try:
            session = open_session(self.folder / entry.file, self._threads, self._device)
        except Exception as error:  # onnxruntime raises its own untyped family
            raise ArtefactError(f"{self.folder / entry.file} does not load: {error}") from error
        _check_border(session.get_inputs(), entry.inputs, entry.file)
        _check_border(session.get_outputs(), entry.outputs, entry.file)
        if session.get_providers()[0] != self._device.provider:
            self._device = Device(session.get_providers()[0])  # for all of its graphs, from now on
        return session

    def card(self) -> str:
        """What the trainer wrote about the model, as Markdown; empty where it wrote nothing."""
        if CARD not in self.manifest.files:
            return ""
        try:
            return (self.folder / CARD).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ArtefactError(f"{self.folder / CARD} cannot be read: {error}.") from None

    def start_points(self) -> Floats:
        """Where chains may begin, in the model's units; (n, d)."""
        path = self.folder / manifests.WEIGHTS
        try:
            with safe_open(path, framework="numpy") as file:
                points: Floats = file.get_tensor(manifests.START_POINTS)
        except (OSError, SafetensorError) as error:
            raise ArtefactError(f"{path} has no usable start points: {error}.") from None
        if points.ndim != 2 or points.shape[1] != self.manifest.input_dims or not len(points):
            raise ArtefactError(f"{path}: start points of shape {points.shape} do not fit.")
        return points

    def noise_level(self, rows: int, sigma: float | None = None) -> Arrays:
        """The `sigma` input of a conditioned model's graphs, or nothing for the others."""
        if not self.manifest.conditioned:
            return {}
        level = self.manifest.sigma if sigma is None else sigma
        return {"sigma": np.full((rows, 1), level, dtype=np.float32)}

    def alpha(self, sigma: float) -> float:
        """α at a noise level: σ², or the manifest's α for a model of one level."""
        m = self.manifest
        return m.alpha if not m.conditioned or sigma == m.sigma else sigma**2


def _check_border(nodes: Sequence[Any], promised: Any, file: str) -> None:
    """The graph's own names and sizes are those that the manifest promised."""
    found = {n.name: tuple(n.shape) for n in nodes}
    sizes = {k: tuple(s if isinstance(s, int) else None for s in v) for k, v in found.items()}
    wanted = {k: tuple(s if isinstance(s, int) else None for s in v) for k, v in promised.items()}
    if sizes != wanted:
        raise ArtefactError(f"{file} takes or gives {found}, but its manifest says {promised}.")
