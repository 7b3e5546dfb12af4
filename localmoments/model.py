"""A model in process: reconstructions, local moments and samples from an artefact's graphs.

`load` finds and verifies an artefact. Rows are in the units of the data everywhere in the public
methods. The service computes the same numbers, bit for bit: it runs the same generators of graph
calls through its batcher.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open

from localmoments import artefact
from localmoments.arrays import Arrays, Doubles, Floats, Reals
from localmoments.artefact import Manifest
from localmoments.chain import STEPS, make_clamp, make_transition, positions, start_state
from localmoments.chain_state import Clamp, Emission
from localmoments.columns import is_within_reach
from localmoments.cpus import available_cpus
from localmoments.errors import ArtefactError, InputError, UnusableAnswerError
from localmoments.estimators import Estimator, Units
from localmoments.graph_calls import run_calls
from localmoments.moments import Moments, MomentsField, MomentsSpec, find_moments
from localmoments.providers import CPU, MEMORY, Device, open_session, run_on_device

if TYPE_CHECKING:
    import onnxruntime as ort

CARD = "card.md"
NEWEST_OPSET = 23  # what the oldest supported onnxruntime can run
MODELS_VARIABLE = "LOCALMOMENTS_MODELS"


@dataclass(frozen=True)
class Reconstruction:
    """r(x) of every row, and its distance from x.

    For a single row x of shape (d,), `reconstruction` is (d,) and `error` a number.
    """

    model: str  # name@version
    sigma: float  # the noise level that was used, in model units
    reconstruction: Reals  # (n, d), in the units of the data
    error: Doubles  # (n,), root mean square over columns of (r(x) - x) / scale


def load(path_or_name: str | os.PathLike[str], *, threads: int | None = None) -> Model:
    """Open a model and verify its files.

    Args:
        path_or_name: a model's folder (`models/digits-dae`, newest version), a version's folder
            (`models/digits-dae/1`), a name (`digits-dae`) or a name with its version
            (`digits-dae@1`). Names are looked up in `$LOCALMOMENTS_MODELS`, or in `./models`.
        threads: for one graph call. Default: the CPUs that this process may use.

    Raises:
        ArtefactError: there is no such model, or its files are incomplete or altered.

    >>> import localmoments
    >>> model = localmoments.load("models/digits-dae")
    >>> model.name, model.version, model.dims
    ('digits-dae', '1', 64)
    """
    return Model.open(find_folder(path_or_name), threads=threads or 0)


class Model:
    """A model of one version. Use `load` to open one.

    A graph's onnxruntime session is opened when the graph is first used.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, *, threads: int = 0, device: Device | None = None
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._threads = threads or available_cpus()
        self._device = device or Device()
        self._sessions: dict[str, ort.InferenceSession] = {}
        self._checked: set[str] = set()  # graphs that were opened once
        self._start_points: Floats | None = None
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: Path, *, threads: int = 0, device: Device | None = None) -> Model:
        """Read a version's manifest and check every file's sha256.

        Args:
            folder: `models/<name>/<version>`.
            threads: for one graph call; 0 for the CPUs that this process may use.
            device: what the graphs run on. Default: the CPU.

        Raises:
            ArtefactError: the folder is missing, incomplete, altered or not understood.
        """
        manifest = artefact.read(folder)
        if manifest.opset > NEWEST_OPSET:
            raise ArtefactError(
                f"{folder} needs ONNX opset {manifest.opset}; the engine runs up to {NEWEST_OPSET}."
            )
        artefact.verify(folder, manifest)
        return cls(folder, manifest, threads=threads, device=device)

    def with_manifest(self, manifest: Manifest) -> Model:
        """Return this model with another manifest, on the same threads and device."""
        return Model(self.folder, manifest, threads=self._threads, device=self._device)

    def __repr__(self) -> str:
        return f"<Model {self.manifest.reference}: {self.dims} columns>"

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def dims(self) -> int:
        """The number of columns of a row, d."""
        return self.manifest.input_dims

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns; None if they have none, as pixels."""
        return self.manifest.features

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels that `sample` accepts; `manifest.default_kernel` is one."""
        return tuple(self.manifest.kernels)

    def reconstruct(self, x: ArrayLike, *, sigma: float | None = None) -> Reconstruction:
        """Compute r(x), the model's reconstruction of each row.

        Args:
            x: (d,) or (n, d), in the units of the data.
            sigma: the noise level in model units, within `manifest.noise_levels`. Default: the
                level for clean rows, `manifest.moments_sigma`.

        Raises:
            InputError: x has the wrong width, or a value that is NaN or too far from the data;
                or the model was not trained at sigma.
            UnusableAnswerError: the model returned NaN or infinity.

        >>> import localmoments
        >>> model = localmoments.load("models/digits-dae")
        >>> result = model.reconstruct(model.sample(3, seed=1))
        >>> result.reconstruction.shape, result.error.shape
        ((3, 64), (3,))
        """
        rows, is_single = _read_rows(x, "x")
        self.manifest.check_width(rows)
        level = self.manifest.choose_sigma(sigma)
        reconstruction, error = self.reconstruct_rows(rows, level)
        if is_single:
            reconstruction, error = reconstruction[0], error[0]
        return Reconstruction(self.manifest.reference, level, reconstruction, error)

    def reconstruct_rows(
        self, x: Reals, sigma: float, first_row: int = 0
    ) -> tuple[Reals, Doubles]:  # fmt: skip
        """Return r(x) (n, d) and the error (n,) of rows (n, d); see `reconstruct`.

        Args:
            first_row: the number of x's first row in the caller's array, for error sentences.
        """
        units = self.manifest.normaliser
        with np.errstate(over="ignore"):  # values that are too far are refused just below
            z = units.to_model(x)
            is_near = is_within_reach(z)
        if not is_near:
            self.manifest.check_range(x, first=first_row)
        mean = self.run("reconstruct", x=z, **self.noise_level(len(x), sigma))["mean"]
        difference = np.subtract(mean, z, dtype=np.float64)  # (n, d)
        error = np.sqrt(np.vecdot(difference, difference) / x.shape[1])
        if not np.isfinite(error).all():
            raise UnusableAnswerError(f"{self.manifest.reference} returned NaN or infinity.")
        return units.to_user(mean), error

    def moments(
        self,
        x: ArrayLike,
        rank: int = 8,
        estimator: Estimator = "asymptotic",
        units: Units = "data",
        include: Iterable[MomentsField] | None = None,
        sigma: float | None = None,
    ) -> Moments:
        """Compute the local mean, covariance and score around each row.

        Args:
            x: (d,) or (n, d), in the units of the data.
            rank: how many tangents (leading eigenvectors of the covariance) to return.
            estimator: "asymptotic" describes the data near x as the model sees them through its
                noise. "inverted" removes the noise.
            units: "data", or "standard" for model units, in which each column is divided by its
                scale.
            include: any of "mean", "tangents", "covariance", "score", "trust", "dimension" and
                "dimension_curve". Default: mean, tangents, and the score if the model knows it.
            sigma: the noise level in model units, within `manifest.noise_levels`. Default: the
                level for clean rows, `manifest.moments_sigma`.

        Returns:
            Moments. For x of shape (d,), its arrays have no leading axis n.

        Raises:
            InputError: x has the wrong width, or a value that is NaN or too far from the data; or
                the model cannot compute what was asked for.
            UnusableAnswerError: the model returned NaN or infinity.

        >>> import localmoments
        >>> model = localmoments.load("models/digits-dae")
        >>> m = model.moments(model.sample(1, seed=1)[0], rank=2, include=["tangents", "dimension"])
        >>> m.eigenvalues.shape, m.tangents.shape, m.mean is None
        ((2,), (2, 64), True)
        """
        if rank < 1:
            raise InputError(f"`rank` must be at least 1; got {rank}.")
        _check_choice("estimator", estimator, get_args(Estimator))
        _check_choice("units", units, get_args(Units))
        rows, is_single = _read_rows(x, "x")
        self.manifest.check_rows(rows)
        fields = None if include is None else frozenset(include)
        if fields is not None and not fields <= set(get_args(MomentsField)):
            raise InputError(f"`include` may hold {', '.join(get_args(MomentsField))}.")
        spec = MomentsSpec(rank, estimator, units, fields, sigma)
        found = run_calls(self, find_moments(self, rows, spec))
        return found.take_row(0) if is_single else found

    def sample(
        self,
        n: int = 1,
        *,
        steps: int = STEPS,
        burn_in: int = 0,
        seed: int | None = None,
        kernel: str | None = None,
        scale: float | Sequence[float] | None = None,
        floor: float = 0.0,
        start: Literal["data", "noise"] | ArrayLike = "data",
        clamp: Clamp | Mapping[str, Any] | None = None,
        metropolis: bool = False,
        emit: Emission | None = None,
    ) -> Reals:
        """Draw n samples: the last positions of n independent walkers.

        Args:
            n: the number of walkers.
            steps: steps after burn-in.
            burn_in: steps before that. Only the last step is returned, so the chain takes
                burn_in + steps steps.
            seed: 0 to 2**63 - 1; the same seed gives the same samples. Default: a random one.
            kernel: one of `kernels`. Default: the model's own.
            scale: the step size, or a schedule of step sizes that repeats. Default: the kernel's.
            floor: standard deviation of noise added after each step, in model units.
            start: "data" for rows like the training data, "noise", or points (d,), (1, d) or
                (n, d) in the units of the data.
            clamp: known columns, as a mapping with "mask" and "values" and optionally "std", the
                standard deviation of the values' error. Each is (d,) or (n, d); std may be a
                number. The other columns are drawn given the known ones.
            metropolis: accept or reject each step, to correct the bias of long steps.
            emit: "mean" for the denoised mean, "noisy" for the chain's own points. Default: the
                model's own choice.

        Returns:
            (n, d), in the units of the data.

        Raises:
            InputError: an argument does not fit the model, or two do not go together.
            DivergedError: the chain diverged; try a smaller scale.

        >>> import localmoments
        >>> model = localmoments.load("models/digits-dae")
        >>> model.sample(4, seed=1).shape
        (4, 64)

        Draw the lower half of a digit given its upper half:

        >>> upper = [True] * 32 + [False] * 32
        >>> digit = model.sample(1, seed=1)[0]
        >>> filled = model.sample(2, seed=2, steps=5, clamp={"mask": upper, "values": digit})
        >>> bool((filled[:, :32] == digit[:32]).all())
        True
        """
        samples = self.chain(
            n, steps=steps, thin=steps, burn_in=burn_in, seed=seed, kernel=kernel, scale=scale,
            floor=floor, start=start, clamp=clamp, metropolis=metropolis, emit=emit,
        )  # fmt: skip
        return next(samples)

    def chain(
        self,
        n: int = 1,
        *,
        steps: int = STEPS,
        thin: int = 1,
        burn_in: int = 0,
        seed: int | None = None,
        kernel: str | None = None,
        scale: float | Sequence[float] | None = None,
        floor: float = 0.0,
        start: Literal["data", "noise"] | ArrayLike = "data",
        clamp: Clamp | Mapping[str, Any] | None = None,
        metropolis: bool = False,
        emit: Emission | None = None,
    ) -> Iterator[Reals]:
        """Iterate over the samples of n walkers, one array (n, d) for every `thin` steps.

        Args:
            steps: how many steps to take after burn-in.
            thin: keep every thin-th step after burn-in.
            burn_in: steps that are taken first and not kept.

        The other arguments and the errors are those of `sample`.

        >>> import localmoments
        >>> model = localmoments.load("models/spiral-dae")
        >>> [x.shape for x in model.chain(5, steps=6, thin=2, burn_in=10, seed=1)]
        [(5, 2), (5, 2), (5, 2)]
        """
        _check_counts(n=n, steps=steps, thin=thin)
        if burn_in < 0:
            raise InputError(f"`burn_in` must not be negative; got {burn_in}.")
        if emit not in (None, "mean", "noisy"):
            raise InputError(f"`emit` must be 'mean' or 'noisy'; got {emit!r}.")
        if isinstance(start, str) and start not in ("data", "noise"):
            raise InputError(f"`start` must be 'data', 'noise' or points; got {start!r}.")
        transition = make_transition(
            self,
            kernel=kernel,
            scale=scale,
            floor=floor,
            seed=seed,
            clamp=None if clamp is None else make_clamp(self, _read_clamp(clamp), n),
            metropolis=metropolis,
        )
        begin: Any = start if isinstance(start, str) else _read_rows(start, "start")[0]
        state = start_state(self, transition, n, begin)
        is_noisy = (emit or self.manifest.default_emit) == "noisy"
        to_user = self.manifest.normaliser.to_user
        walk = positions(self, transition, state, burn_in + steps)
        return (
            to_user(at.noisy if is_noisy else at.mean)
            for at in walk
            if at.step > burn_in and (at.step - burn_in) % thin == 0
        )

    def card(self) -> str:
        """Return the model card that the trainer wrote, as Markdown; empty if there is none."""
        if CARD not in self.manifest.files:
            return ""
        try:
            return (self.folder / CARD).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ArtefactError(f"{self.folder / CARD} cannot be read: {error}.") from None

    def start_points(self) -> Floats:
        """Return the points at which chains may start, in model units; (n, d), read-only.

        They are read from disk at the first call.
        """
        if self._start_points is None:
            self._start_points = self._read_start_points()
        return self._start_points

    def _read_start_points(self) -> Floats:
        path = self.folder / artefact.WEIGHTS
        try:
            with safe_open(path, framework="numpy") as file:
                points: Floats = file.get_tensor(artefact.START_POINTS)
        except (OSError, SafetensorError) as error:
            raise ArtefactError(f"{path} has no usable start points: {error}.") from None
        if points.ndim != 2 or points.shape[1] != self.manifest.input_dims or not len(points):
            raise ArtefactError(f"{path}: start points of shape {points.shape} do not fit.")
        points.setflags(write=False)
        return points

    def noise_level(self, rows: int, sigma: float | None = None) -> Arrays:
        """Return the `sigma` input of a conditioned model's graphs; {} for other models.

        Args:
            sigma: in model units. Default: the level of chains, `manifest.sigma`.
        """
        if not self.manifest.is_conditioned:
            return {}
        level = self.manifest.sigma if sigma is None else sigma
        return {"sigma": np.full((rows, 1), level, dtype=np.float32)}

    def alpha(self, sigma: float) -> float:
        """Return α at a noise level: σ², or the manifest's α for a model of one level."""
        m = self.manifest
        return m.alpha if not m.is_conditioned or sigma == m.sigma else sigma**2

    @property
    def provider(self) -> str:
        """The onnxruntime provider of the graphs; before one is opened, the intended one."""
        return self._device.provider

    def run(self, graph: str, **inputs: NDArray[np.float32]) -> Arrays:
        """Run one pass of a graph: named arrays in, named arrays out, in model units."""
        session = self.session(graph)
        names = list(self.manifest.graphs[graph].outputs)
        if self.provider == CPU:  # the arrays are already in the right memory
            arrays = session.run(names, inputs)
        else:
            arrays = run_on_device(session, names, inputs, MEMORY[self.provider])
        return dict(zip(names, arrays, strict=True))

    def check(self, *graphs: str) -> None:
        """Open these graphs and close them again.

        This finds faults before the first request, and a model that nobody uses takes no memory.

        Raises:
            ArtefactError: a graph is missing or does not load.
        """
        for graph in graphs:
            if graph not in self.manifest.graphs:
                raise ArtefactError(f"{self.folder} has no graph named {graph!r}.")
            if graph not in self._checked:
                self._open_session(graph)
                self._checked.add(graph)

    def prepare(self) -> None:
        """Open the graphs that most requests need, so that the first one does not wait."""
        kernel = self.manifest.kernels[self.manifest.default_kernel]
        for graph in ("reconstruct", kernel.graph):
            self.session(graph)

    def session(self, graph: str) -> ort.InferenceSession:
        """Return a graph's session, opened at first use."""
        with self._lock:
            if graph not in self._sessions:
                self._sessions[graph] = self._open_session(graph)
            return self._sessions[graph]

    def _open_session(self, graph: str) -> ort.InferenceSession:
        entry = self.manifest.graphs[graph]
        try:
            session = open_session(self.folder / entry.file, self._threads, self._device)
        except ImportError:  # onnxruntime is not installed; the artefact is not at fault
            raise
        except Exception as error:  # onnxruntime raises its own untyped family
            raise ArtefactError(f"{self.folder / entry.file} does not load: {error}") from error
        _check_shapes(session.get_inputs(), entry.inputs, entry.file)
        _check_shapes(session.get_outputs(), entry.outputs, entry.file)
        if session.get_providers()[0] != self._device.provider:
            self._device = Device(session.get_providers()[0])  # all its graphs use it from now on
        return session


def _check_shapes(nodes: Sequence[Any], promised: Any, file: str) -> None:
    """Check a graph's names and sizes against the manifest's."""
    actual = {n.name: tuple(n.shape) for n in nodes}
    sizes = {k: tuple(s if isinstance(s, int) else None for s in v) for k, v in actual.items()}
    expected = {k: tuple(s if isinstance(s, int) else None for s in v) for k, v in promised.items()}
    if sizes != expected:
        raise ArtefactError(f"{file} takes or gives {actual}, but its manifest says {promised}.")


def _read_rows(x: ArrayLike, name: str) -> tuple[Reals, bool]:
    """Convert to rows (n, d) of float32 or float64; True if x was a single row (d,)."""
    try:
        rows = np.asarray(x)
        rows = rows if rows.dtype == np.float32 else rows.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers, (d,) or (n, d).") from None
    if rows.ndim not in (1, 2):
        raise InputError(f"{name} must be (d,) or (n, d); its shape is {rows.shape}.")
    return np.atleast_2d(rows), rows.ndim == 1


def _read_clamp(clamp: Clamp | Mapping[str, Any]) -> Clamp:
    if isinstance(clamp, Clamp):
        return clamp
    if not {"mask", "values"} <= set(clamp) <= {"mask", "values", "std"}:
        raise InputError('`clamp` must have "mask" and "values", and may have "std".')
    mask, values = np.asarray(clamp["mask"]), _read_rows(clamp["values"], "clamp.values")[0]
    if mask.ndim not in (1, 2) or not np.isin(mask, (False, True)).all():
        raise InputError("clamp.mask must be booleans, (d,) or (n, d).")
    std: Any = clamp.get("std")
    errors = np.full((1, 1), std or 0.0) if np.ndim(std) == 0 else _read_rows(std, "clamp.std")[0]
    return Clamp(np.atleast_2d(mask).astype(np.bool_), values, errors)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}.")


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"`{name}` must be at least 1; got {count}.")


def find_folder(path_or_name: str | os.PathLike[str], models: Path | None = None) -> Path:
    """Return the folder of the version that `load` opens.

    Args:
        models: where names are looked up. Default: `$LOCALMOMENTS_MODELS`, or `./models`.

    Raises:
        ArtefactError: there is no such model.
    """
    path = Path(path_or_name)
    name, _, version = str(path_or_name).partition("@")
    models = models or Path(os.environ.get(MODELS_VARIABLE) or "models")
    for folder in (path, models / name / version if version else models / name):
        if (folder / artefact.MANIFEST).is_file():
            return folder
        if versions := _list_versions(folder):
            return versions[-1]
    names = sorted(f.name for f in models.iterdir() if _list_versions(f)) if models.is_dir() else []
    has = f"{models} has {', '.join(names)}" if names else f"{models} has no models"
    if _list_versions(models / name):
        has = f"{name} has {', '.join(f.name for f in _list_versions(models / name))}"
    raise ArtefactError(
        f"There is no model {str(path_or_name)!r}: neither the folder {path} nor a model of that "
        f"name in {models}; {has}."
    )


def _list_versions(folder: Path) -> list[Path]:
    """Return the folders of a model's versions, oldest first."""
    if not folder.is_dir():
        return []
    folders = [f for f in folder.iterdir() if f.name.isdecimal()]
    return sorted(
        (f for f in folders if (f / artefact.MANIFEST).is_file()), key=lambda f: int(f.name)
    )
