"""The artefact's manifest: the one contract between trainer and service (docs/artefact.md).

A model lives in `models/<name>/<version>/`: manifest.json, weights.safetensors, *.onnx, card.md
and figures. This module reads, checks and writes the manifest; it opens no weights.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from localmoments.arrays import FARTHEST, Reals
from localmoments.columns import Normaliser
from localmoments.errors import ArtefactError, InputError

FORMAT = 2
READABLE = (1, FORMAT)  # format 1 has no `moments_sigma` and no `typical`
PERCENTILES = 101  # entries of `typical`: 0 %, 1 %, ..., 100 %
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
START_POINTS = "start_points"  # the tensor in WEIGHTS that holds where chains may begin
KINDS = ("cae", "dae", "rcae")
LOSSES = ("squared", "cross-entropy")
EMISSIONS = ("mean", "noisy")
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

Shape = tuple[str | int, ...]  # a name stands for a dynamic axis


@dataclass(frozen=True)
class Graph:
    """One ONNX file and the names and shapes at its border."""

    file: str
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]


@dataclass(frozen=True)
class Kernel:
    """A graph `step(state, noise, scale) -> (next, mean)`, and what it needs."""

    graph: str
    space: str  # "input" or "hidden": what its state is
    noise: int  # standard normals a row and step
    scale: float  # the default


@dataclass(frozen=True)
class Manifest:
    """What the service must know about a model before it opens the graphs."""

    name: str
    version: str
    kind: str
    loss: str
    alpha: float
    sigma: float  # the noise level of chains
    moments_sigma: float  # the noise level for clean rows: reconstruction and local moments
    noise_levels: tuple[float, float] | None  # the range of a model that takes its noise level
    covariance_scale: str  # "absolute" or "relative"
    input_dims: int
    hidden_dims: int
    features: tuple[str, ...] | None
    image: tuple[int, ...] | None
    normaliser: Normaliser
    graphs: Mapping[str, Graph]
    kernels: Mapping[str, Kernel]
    default_kernel: str
    default_emit: str  # "mean" or "noisy"
    opset: int
    files: Mapping[str, str]  # file name -> sha256
    # Percentiles of ‖x − r(x)‖² − σ² tr J over clean held-out rows at `moments_sigma`, in the
    # model's units; empty if they were not measured.
    typical: tuple[float, ...] = ()
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    created: str = ""

    @property
    def reference(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def conditioned(self) -> bool:
        """True where the graphs take the noise level as an input."""
        return self.noise_levels is not None

    def state_dims(self, kernel: str) -> int:
        return self.hidden_dims if self.kernels[kernel].space == "hidden" else self.input_dims

    def choose_sigma(self, sigma: float | None) -> float:
        """Return sigma if the model was trained at it; for None, the level for clean rows.

        Raises:
            InputError: the model was trained at one noise level, or sigma is outside its range.
        """
        if sigma is None:
            return self.moments_sigma
        if self.noise_levels is None:
            raise InputError(f"{self.reference} was trained at one noise level; leave sigma out.")
        low, high = self.noise_levels
        if not low <= sigma <= high:
            raise InputError(f"sigma is {sigma:g}, but {self.reference} knows {low:g} to {high:g}.")
        return sigma

    def check_width(self, x: Reals, name: str = "x") -> None:
        """Raise InputError unless x is (n, d) with at least one row."""
        if not len(x):
            raise InputError(f"{name} has no rows.")
        if x.shape[1] != self.input_dims:
            raise InputError(
                f"{name} has {x.shape[1]} columns, but {self.reference} takes {self.input_dims}."
            )

    def check_range(self, x: Reals, name: str = "x", first: int = 0) -> None:
        """Raise InputError for values that are out of reach or NaN.

        Args:
            x: (n, d), in the units of the data.
            first: the number of x's first row in the caller's array, for the error's sentence.
        """
        units = self.normaliser
        low, high = units.within(FARTHEST)
        if low <= x.min() and x.max() <= high:
            return
        with np.errstate(over="ignore"):
            near = np.abs(x - units.shift) <= FARTHEST * units.scale
        if not near.all():
            i, j = np.argwhere(~near)[0]
            raise InputError(
                f"{name}[{first + i}][{j}] is {x[i, j]:g}, which is too far from the data that "
                f"{self.reference} was trained on."
            )

    def check_rows(self, x: Reals, name: str = "x") -> None:
        """Check width and range of rows (n, d) in the units of the data."""
        self.check_width(x, name)
        self.check_range(x, name)


def dumps(manifest: Manifest) -> str:
    """The manifest as JSON text; an affine map that is the same for all features is one number."""
    body = {"format": FORMAT, **asdict(manifest)}
    body["normaliser"] = {
        "shift": _shortened(manifest.normaliser.shift),
        "scale": _shortened(manifest.normaliser.scale),
    }
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _shortened(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | list[float]:
    return float(values[0]) if np.all(values == values[0]) else [float(v) for v in values]


def read(folder: Path) -> Manifest:
    """Parse and check `folder/manifest.json`; the files themselves are checked by `verify`."""
    path = folder / MANIFEST
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtefactError(f"{folder} has no {MANIFEST}.") from None
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}.") from None
    try:
        return parse(body)
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ArtefactError(
            f"{path} does not follow the manifest's format: {type(error).__name__} {error}."
        ) from None


def parse(body: Mapping[str, Any]) -> Manifest:
    """A manifest from decoded JSON, every value checked."""
    if body.get("format") not in READABLE:
        raise ArtefactError(
            f"format {body.get('format')!r} is not supported; this release reads formats "
            f"{' and '.join(map(str, READABLE))}."
        )
    if body["format"] == 1:
        body = {**body, "moments_sigma": body["sigma"], "typical": []}
    d = int(body["input_dims"])
    levels = body["noise_levels"]
    manifest = Manifest(
        name=str(body["name"]),
        version=str(body["version"]),
        kind=str(body["kind"]),
        loss=str(body["loss"]),
        alpha=float(body["alpha"]),
        sigma=float(body["sigma"]),
        moments_sigma=float(body["moments_sigma"]),
        noise_levels=None if levels is None else (float(levels[0]), float(levels[1])),
        covariance_scale=str(body["covariance_scale"]),
        input_dims=d,
        hidden_dims=int(body["hidden_dims"]),
        features=None if body["features"] is None else tuple(map(str, body["features"])),
        image=None if body["image"] is None else tuple(map(int, body["image"])),
        normaliser=Normaliser(
            _per_feature(body["normaliser"]["shift"], d),
            _per_feature(body["normaliser"]["scale"], d),
        ),
        graphs={str(k): _graph(v) for k, v in body["graphs"].items()},
        kernels={str(k): Kernel(**v) for k, v in body["kernels"].items()},
        default_kernel=str(body["default_kernel"]),
        default_emit=str(body["default_emit"]),
        opset=int(body["opset"]),
        files={str(k): str(v) for k, v in body["files"].items()},
        typical=tuple(map(float, body["typical"])),
        evaluation=dict(body["evaluation"]),
        data=dict(body["data"]),
        recipe=dict(body["recipe"]),
        libraries=dict(body["libraries"]),
        created=str(body["created"]),
    )
    _check(manifest)
    return manifest


def _per_feature(value: float | list[float], d: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = np.asarray(value, dtype=np.float64)
    return np.full(d, float(array)) if array.ndim == 0 else array


def _graph(body: Mapping[str, Any]) -> Graph:
    return Graph(
        str(body["file"]),
        {str(k): tuple(v) for k, v in body["inputs"].items()},
        {str(k): tuple(v) for k, v in body["outputs"].items()},
    )


def _check(m: Manifest) -> None:
    """Refuse what would fail later, with a sentence."""
    shift, scale = m.normaliser.shift, m.normaliser.scale
    rules = [
        (bool(NAME.fullmatch(m.name)), f"{m.name!r} is not a model name"),
        (m.version.isdecimal(), f"version {m.version!r} is not a whole number"),
        (m.kind in KINDS, f"kind {m.kind!r} is none of {', '.join(KINDS)}"),
        (m.loss in LOSSES, f"loss {m.loss!r} is none of {', '.join(LOSSES)}"),
        (0 < m.alpha < math.inf, f"alpha {m.alpha} is not a positive number"),
        (0 < m.sigma < math.inf, f"sigma {m.sigma} is not a positive number"),
        (
            m.noise_levels is None or 0 < m.noise_levels[0] <= m.noise_levels[1] < math.inf,
            "noise_levels must be two positive numbers in ascending order",
        ),
        (
            m.moments_sigma == m.sigma
            if m.noise_levels is None
            else m.noise_levels[0] <= m.moments_sigma <= m.noise_levels[1],
            f"moments_sigma {m.moments_sigma} is not a level that the model was trained for",
        ),
        (
            len(m.typical) in (0, PERCENTILES)
            and all(map(math.isfinite, m.typical))
            and list(m.typical) == sorted(m.typical),
            f"typical must be empty or {PERCENTILES} ascending numbers",
        ),
        (m.covariance_scale in ("absolute", "relative"), "covariance_scale is not understood"),
        (m.input_dims > 0 and m.hidden_dims > 0, "dimensions must be positive"),
        (shift.shape == scale.shape == (m.input_dims,), "the normaliser has the wrong length"),
        (
            bool(np.all(np.isfinite(shift)) and np.all((scale > 0) & (scale < np.inf))),
            "the normaliser is not usable",
        ),
        (m.features is None or len(m.features) == m.input_dims, "wrong number of feature names"),
        (m.image is None or math.prod(m.image) == m.input_dims, "image shape and dims disagree"),
        (m.default_kernel in m.kernels, f"default kernel {m.default_kernel!r} is not listed"),
        (m.default_emit in EMISSIONS, f"emission {m.default_emit!r} is not understood"),
        (WEIGHTS in m.files, f"{WEIGHTS} is not among the files"),
        (all(FILE.fullmatch(f) for f in m.files), "a file name leaves the model's folder"),
        (all(g.file in m.files for g in m.graphs.values()), "a graph's file is not listed"),
        (all(k.graph in m.graphs for k in m.kernels.values()), "a kernel's graph is not listed"),
        (all(k.space in ("input", "hidden") for k in m.kernels.values()), "unknown kernel space"),
        (all(_usable(k) for k in m.kernels.values()), "unusable kernel numbers"),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ArtefactError(f"{sentence}.")


def _usable(kernel: Kernel) -> bool:
    return isinstance(kernel.noise, int) and kernel.noise > 0 and 0 < kernel.scale < math.inf


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path, manifest: Manifest) -> None:
    """Every listed file is there and has the bytes that the trainer wrote."""
    for name, digest in manifest.files.items():
        try:
            actual = sha256(folder / name)
        except OSError as error:
            raise ArtefactError(f"{folder / name} cannot be read: {error.strerror}.") from None
        if actual != digest:
            raise ArtefactError(f"{folder / name} was altered: its sha256 is not the manifest's.")
