"""The artefact's manifest: the one contract between trainer and service (docs/artefact.md).

A model lives in `models/<name>/<version>/`: manifest.json, weights.safetensors, *.onnx, card.md
and plots. This module reads, checks and writes the manifest. It opens no weights.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    Field,
    FiniteFloat,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from localmoments.arrays import FARTHEST, Doubles, Reals
from localmoments.columns import Normaliser
from localmoments.errors import ArtefactError, InputError

FORMAT = 2
READABLE = (1, FORMAT)  # format 1 has no `moments_sigma` and no `typical`
PERCENTILES = 101  # entries of `typical`: 0 %, 1 %, ..., 100 %
MOST_DIMS = 10_000_000  # so that a hostile manifest cannot ask for all memory
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
START_POINTS = "start_points"  # the tensor in WEIGHTS that holds the points where chains may start
KINDS = ("cae", "dae", "rcae")
LOSSES = ("squared", "cross-entropy")
EMISSIONS = ("mean", "noisy")
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

Shape = tuple[str | int, ...]  # a name stands for a dynamic axis


def _one_of(*choices: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value

    return AfterValidator(check)


def _check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError("must be a model name: up to 64 of a-z, 0-9, '_', '.' and '-'")
    return name


def _check_version(version: str) -> str:
    if not (version.isascii() and version.isdecimal()):
        raise ValueError("must be a whole number, as text")
    return version


def _check_file(name: str) -> str:
    if not FILE.fullmatch(name):
        raise ValueError("must be a file name in the model's folder")
    return name


def _read_normaliser(value: Any, info: ValidationInfo) -> Normaliser:
    """Read {"shift": ..., "scale": ...}; each is one number, or one number per column."""
    d = info.data.get("input_dims", 0)
    try:
        arrays = [np.asarray(value[name], dtype=np.float64) for name in ("shift", "scale")]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ValueError('must be an object with the numbers "shift" and "scale"') from None
    shift, scale = (np.full(d, float(a)) if a.ndim == 0 else a for a in arrays)
    if not shift.shape == scale.shape == (d,):
        raise ValueError(f"must have one number, or {d} numbers, for shift and for scale")
    if not (np.isfinite(shift).all() and ((scale > 0) & (scale < np.inf)).all()):
        raise ValueError("must have finite shifts and finite, positive scales")
    return Normaliser(shift, scale)


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(gt=0, le=MOST_DIMS)]
FileName = Annotated[str, AfterValidator(_check_file)]


@dataclass(frozen=True)
class Graph:
    """One ONNX file, and the names and shapes of its inputs and outputs."""

    file: FileName
    inputs: Mapping[str, Shape]
    outputs: Mapping[str, Shape]


@dataclass(frozen=True)
class Kernel:
    """A graph `step(state, noise, scale) -> (next, mean)`, and what it needs."""

    graph: str
    space: Annotated[str, _one_of("input", "hidden")]  # what its state is
    noise: Count  # standard normals per row and step
    scale: Positive  # the default


@dataclass(frozen=True)
class Manifest:
    """Everything that a reader must know about a model before it opens the graphs."""

    name: Annotated[str, AfterValidator(_check_name)]
    version: Annotated[str, AfterValidator(_check_version)]
    kind: Annotated[str, _one_of(*KINDS)]
    loss: Annotated[str, _one_of(*LOSSES)]
    alpha: Positive
    sigma: Positive  # the noise level of chains
    moments_sigma: Positive  # the noise level for clean rows: reconstruction and local moments
    noise_levels: tuple[Positive, Positive] | None  # the range of a model that takes its level
    covariance_scale: Annotated[str, _one_of("absolute", "relative")]
    input_dims: Count
    hidden_dims: Count
    features: tuple[str, ...] | None
    image: tuple[Count, ...] | None
    normaliser: Annotated[Normaliser, PlainValidator(_read_normaliser)]
    graphs: Mapping[str, Graph]
    kernels: Mapping[str, Kernel]
    default_kernel: str
    default_emit: Annotated[str, _one_of(*EMISSIONS)]
    opset: Annotated[int, Field(gt=0)]
    files: Mapping[FileName, str]  # file name -> sha256
    # Percentiles of ‖x − r(x)‖² − σ² tr J over clean held-out rows at `moments_sigma`, in model
    # units; empty if they were not measured.
    typical: tuple[FiniteFloat, ...] = ()
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    created: str = ""

    @property
    def reference(self) -> str:
        """name@version"""
        return f"{self.name}@{self.version}"

    @property
    def is_conditioned(self) -> bool:
        """True if the graphs take the noise level as an input."""
        return self.noise_levels is not None

    def state_dims(self, kernel: str) -> int:
        """Return the number of columns of a kernel's state."""
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
    """Return the manifest as JSON text, in the newest format.

    A shift or scale that is the same for all columns is written as one number.
    """
    body = {"format": FORMAT, **asdict(manifest)}
    body["normaliser"] = {
        "shift": _shorten(manifest.normaliser.shift),
        "scale": _shorten(manifest.normaliser.scale),
    }
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _shorten(values: Doubles) -> float | list[float]:
    return float(values[0]) if np.all(values == values[0]) else [float(v) for v in values]


def read(folder: Path) -> Manifest:
    """Read and check `folder/manifest.json`. `verify` checks the other files.

    Raises:
        ArtefactError: the file is missing or unreadable, or a value is wrong; the sentence names
            the file and the field.
    """
    path = folder / MANIFEST
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtefactError(f"{folder} has no {MANIFEST}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArtefactError(f"{path} cannot be read: {error}.") from None
    try:
        return parse(body)
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error}") from None


def parse(body: Any) -> Manifest:
    """Make a manifest from decoded JSON and check every value.

    Raises:
        ArtefactError: a value is missing or wrong; the sentence names its field.
    """
    if not isinstance(body, dict):
        raise ArtefactError(f"the manifest must be a JSON object; got {_shorten_value(body)}.")
    if body.get("format") not in READABLE:
        raise ArtefactError(
            f"format {_shorten_value(body.get('format'))} is not supported; this release reads "
            f"formats {' and '.join(map(str, READABLE))}."
        )
    if body["format"] == 1:
        body = {**body, "moments_sigma": body.get("sigma"), "typical": []}
    # The fields with defaults are optional in Python, but not in the file.
    for name in ("typical", "evaluation", "data", "recipe", "libraries", "created"):
        if name not in body:
            raise ArtefactError(f"`{name}` is missing.")
    try:
        manifest = _adapter().validate_python(body)
    except ValidationError as error:
        raise ArtefactError(_explain(error)) from None
    _check_together(manifest)
    return manifest


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def _explain(error: ValidationError) -> str:
    """Return a sentence about the first fault that names its field."""
    first = error.errors(include_url=False)[0]
    parts = [str(part) for part in first["loc"]]
    place = ".".join(parts[:-2] if parts[-1] == "[key]" else parts)
    if first["type"] == "missing":
        return f"`{place}` is missing."
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"`{place}` {message[0].lower()}{message[1:]}; got {_shorten_value(first['input'])}."


def _shorten_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_together(m: Manifest) -> None:
    """Check the fields that depend on each other."""
    rules = [
        (
            m.noise_levels is None or m.noise_levels[0] <= m.noise_levels[1],
            "`noise_levels` must be in ascending order",
        ),
        (
            m.moments_sigma == m.sigma
            if m.noise_levels is None
            else m.noise_levels[0] <= m.moments_sigma <= m.noise_levels[1],
            f"`moments_sigma` {m.moments_sigma} is not a level that the model was trained at",
        ),
        (
            len(m.typical) in (0, PERCENTILES) and list(m.typical) == sorted(m.typical),
            f"`typical` must be empty or {PERCENTILES} ascending numbers",
        ),
        (
            m.features is None or len(m.features) == m.input_dims,
            f"`features` must have {m.input_dims} names",
        ),
        (
            m.image is None or math.prod(m.image) == m.input_dims,
            f"`image` must have {m.input_dims} pixels",
        ),
        (m.default_kernel in m.kernels, f"`default_kernel` {m.default_kernel!r} is not a kernel"),
        (WEIGHTS in m.files, f"`files` must list {WEIGHTS}"),
        (
            all(graph.file in m.files for graph in m.graphs.values()),
            "`files` must list the file of every graph",
        ),
        (
            all(kernel.graph in m.graphs for kernel in m.kernels.values()),
            "`graphs` must list the graph of every kernel",
        ),
    ]
    for holds, sentence in rules:
        if not holds:
            raise ArtefactError(f"{sentence}.")


def sha256(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path, manifest: Manifest) -> None:
    """Check that every listed file is there and has the bytes that the trainer wrote.

    Raises:
        ArtefactError: naming the file that is missing or altered.
    """
    for name, digest in manifest.files.items():
        try:
            actual = sha256(folder / name)
        except OSError as error:
            raise ArtefactError(f"{folder / name} cannot be read: {error.strerror}.") from None
        if actual != digest:
            raise ArtefactError(f"{folder / name} was altered: its sha256 is not the manifest's.")
