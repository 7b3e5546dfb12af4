"""GET /moments: the 16 leading tangents, against the same call in process and against autograd.

In process: `localmoments.load(...).moments(x, rank=16)`, with the same number of threads for
onnxruntime and one for NumPy. The difference is HTTP, JSON and the queue of the service.

Autograd: the Jacobian of the same weights by `torch.func.jacrev`, then all of `torch.linalg.eigh`,
both in float32, in this process. The service finds only the leading pairs, by a block Krylov
method. A request with many points is measured separately, because one point does not fill a matrix
product.

Accuracy: the sine of the largest angle to the exact space of 16 directions (jacrev, then eigh in
float64), at points whose relative gap after eigenvalue 16 is at least 1 %. Without a gap the space
is not well defined, so at all points the residual is checked too: ‖A t − λ t‖ / λ with λ = tᵀ A t.
"""

import base64
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import torch
from measure import Figure, divide, time_call

import localmoments
from localmoments.model import Model
from serving import artefacts, load
from serving.baselines import load_autoencoder
from serving.chains import JSON, NPY
from serving.load import BlockingClient, build_request
from serving.roster import Array, Setup, write_npy
from serving.servers import Server

RANK, POINTS, MANY_POINTS = 16, 8, 32
MIN_GAP = 0.01
WIDTHS = (784, 3136, 12288)
WIDEST_EXACT = 3136  # jacrev + eigh takes too long beyond


def measure_tangents(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """All figures of this file."""
    yield from _compare(setup, rounds)
    yield from _measure_widths(setup, rounds)


def _compare(setup: Setup, rounds: int) -> Iterator[Figure]:
    model = Model.open(setup.artefact, threads=setup.threads)
    z = model.start_points()[:MANY_POINTS]
    x = model.manifest.normaliser.to_user(z)
    requests, many = [_build_get(row) for row in x[:POINTS]], _build_post(x)
    torch.set_num_threads(setup.threads)
    exact = ExactTangents(setup.artefact, model)
    in_process = _make_in_process(setup)
    times: dict[str, list[float]] = {"GET": [], "in process": [], "exact": [], "POST": []}
    with setup.start() as server:
        tangents = _fetch_tangents(server, many)
        measurements: dict[str, Callable[[], float]] = {
            "GET": lambda: _measure_latency(server, requests),
            "in process": lambda: _find_median([partial(in_process, row) for row in x[:POINTS]]),
            "exact": lambda: exact.measure_latency(z[:POINTS]),
            "POST": lambda: time_call(lambda: _fetch_tangents(server, many)) / len(x),
        }
        for measure in measurements.values():
            measure()  # warm up
        for i in range(rounds):
            for name in list(measurements)[:: 1 if i % 2 == 0 else -1]:
                times[name].append(1e3 * measurements[name]())
    d = z.shape[1]
    yield Figure(f"top-{RANK} tangents, d = {d}, GET /moments", "ms", tuple(times["GET"]))
    yield Figure("the same call in process", "ms", tuple(times["in process"]))
    ratio = divide(times["GET"], times["in process"])
    yield Figure("GET /moments / in process", "×", ratio, at_most=1.3)
    yield Figure(f"each of {len(x)} points in one POST /moments", "ms", tuple(times["POST"]))
    yield Figure("torch.func.jacrev + eigh", "ms", tuple(times["exact"]))
    yield Figure("jacrev + eigh / GET /moments", "×", divide(times["exact"], times["GET"]))
    ratio = divide(times["exact"], times["POST"])
    yield Figure(f"jacrev + eigh / each of {len(x)} points", "×", ratio)
    yield from _measure_accuracy(exact, z, tangents)


def _make_in_process(setup: Setup) -> Callable[[Array], object]:
    model = localmoments.load(setup.artefact, threads=setup.threads)
    return lambda x: model.moments(x, rank=RANK, include=["tangents"])


def _measure_accuracy(exact: "ExactTangents", z: Array, tangents: Array) -> Iterator[Figure]:
    sines, gaps, residuals = [], [], []
    for point, basis in zip(z, tangents, strict=True):
        A = exact.compute_matrix(point)
        values, vectors = np.linalg.eigh(A)  # ascending
        sines.append(compute_distance(basis, vectors[:, ::-1].T[:RANK]))
        gaps.append(float(1 - values[-RANK - 1] / values[-RANK]))
        residuals.append(_compute_residual(A, basis))
    separated = [sine for sine, gap in zip(sines, gaps, strict=True) if gap >= MIN_GAP]
    name = f"sine of the largest angle to the exact top-{RANK}"
    yield Figure(f"{name}, each of {len(sines)} points", "", tuple(sines))
    if separated:
        worst = f"{name}, worst of {len(separated)} points with a gap"
        yield Figure(worst, "", (max(separated),), at_most=1e-3)
    yield Figure(f"relative gap after eigenvalue {RANK}", "", tuple(gaps))
    yield Figure("relative residual of a tangent, worst", "", (max(residuals),), at_most=1e-2)


def _compute_residual(A: Array, tangents: Array) -> float:
    """Return the largest ‖A t − λ t‖ / λ; tangents (k, d)."""
    images = tangents @ A
    values = np.einsum("kd,kd->k", images, tangents)[:, None]
    return float((np.linalg.norm(images - values * tangents, axis=1) / values[:, 0]).max())


class ExactTangents:
    """All eigenpairs of A = (J + Jᵀ)/2, by automatic differentiation."""

    def __init__(self, artefact: Path, model: Model) -> None:
        self._ae = load_autoencoder(artefact, model)
        level = model.noise_level(1)
        self._sigma = torch.from_numpy(level["sigma"]) if level else None

    def compute_matrix(self, z: Array) -> Array:
        """Return A at z; (d, d), float64."""
        with torch.no_grad():
            J: Array = torch.func.jacrev(self._r)(torch.from_numpy(z)).double().numpy()
        return (J + J.T) / 2

    def compute_eigenpairs(self, z: Array) -> tuple[Array, Array]:
        with torch.no_grad():
            J = torch.func.jacrev(self._r)(torch.from_numpy(z))  # (d, d)
            values, vectors = torch.linalg.eigh((J + J.T) / 2)
        return values.numpy()[::-1], vectors.numpy().T[::-1]

    def measure_latency(self, points: Array) -> float:
        return _find_median([partial(self.compute_eigenpairs, z) for z in points])

    def _r(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self._ae(x[None], self._sigma)[0]
        return out


def compute_distance(u: Array, v: Array) -> float:
    """Return ‖(I − P_u) v‖₂, the sine of the largest angle between the row spaces of u and v."""
    p, q = np.linalg.qr(u.T.astype(np.float64))[0], np.linalg.qr(v.T.astype(np.float64))[0]
    return float(np.linalg.norm(q - p @ (p.T @ q), 2))


def _measure_widths(setup: Setup, rounds: int) -> Iterator[Figure]:
    """One point by POST, for models of several widths; the hidden layers keep their width.

    12,288 numbers are too long for a URL, hence POST.
    """
    medians = {}
    for d in WIDTHS:
        with tempfile.TemporaryDirectory(prefix="lm-models-") as name:
            artefact = artefacts.make_deep(Path(name), d)
            wide = replace(setup, models=Path(name), artefact=artefact)
            times = tuple(_measure_posts(wide, rounds))
            exact = 1e3 * _measure_exact(wide) if WIDTHS[0] < d <= WIDEST_EXACT else None
        yield Figure(f"top-{RANK} tangents, d = {d:,}, POST /moments", "ms", times)
        medians[d] = statistics.median(times)
        if exact is not None:
            yield Figure(f"jacrev + eigh / POST /moments, d = {d:,}", "×", (exact / medians[d],))
    for d in WIDTHS[1:]:
        growth = medians[d] / medians[WIDTHS[0]] / (d / WIDTHS[0])
        yield Figure(f"cost at d = {d:,} / linear growth from 784", "×", (growth,), at_most=1.5)
    cost, width = medians[WIDTHS[-1]] / medians[WIDTHS[0]], WIDTHS[-1] / WIDTHS[0]
    yield Figure("exponent of d, 784 to 12,288", "", (math.log(cost) / math.log(width),))


def _measure_posts(setup: Setup, rounds: int) -> Iterator[float]:
    model = Model.open(setup.artefact)
    x = model.manifest.normaliser.to_user(model.start_points()[:POINTS])
    requests = [_build_post(row[None]) for row in x]
    with setup.start() as server:
        _fetch_tangents(server, requests[0])
        for _ in range(rounds):
            yield 1e3 * _measure_latency(server, requests)


def _measure_exact(setup: Setup) -> float:
    model = Model.open(setup.artefact)
    torch.set_num_threads(setup.threads)
    return ExactTangents(setup.artefact, model).measure_latency(model.start_points()[:1])


def _build_post(x: Array) -> bytes:
    path = f"/moments?rank={RANK}&include=tangents"
    return build_request("POST", path, write_npy(x.astype("<f4")), content_type=NPY, accept=JSON)


def _build_get(x: Array) -> bytes:
    text = base64.urlsafe_b64encode(x.astype("<f4").tobytes()).decode().rstrip("=")
    return build_request("GET", f"/moments?rank={RANK}&include=tangents&x_b64={text}", accept=JSON)


def _fetch_tangents(server: Server, data: bytes) -> Array:
    """Return (k, d) for the point of a GET, (n, k, d) for those of a POST."""
    status, body = load.run(load.fetch(server.address, data))
    if status != 200:
        raise RuntimeError(f"/moments returned {status}: {body[:300]!r}")
    return np.asarray(orjson.loads(body)["tangents"])


def _measure_latency(server: Server, requests: list[bytes]) -> float:
    """Return the median time of requests for different points, over one connection."""
    with BlockingClient(server.address) as client:
        return _find_median([partial(client.call, data) for data in requests])


def _find_median(calls: Sequence[Callable[[], object]]) -> float:
    """Return the median time of different calls in seconds."""
    return statistics.median(time_call(call) for call in calls)
