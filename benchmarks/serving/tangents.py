"""Top-16 tangents: /moments against torch.func.jacrev + eigh, and the cost as rows become wider.

What is compared. Theirs: the Jacobian of the same weights by `torch.func.jacrev` and all of
`torch.linalg.eigh`, both in float32, in this process and without HTTP. Ours: whole requests to the
service, with HTTP, JSON and the event loop, which may run on another CPU than what computes.
onnxruntime and torch have the same number of threads (`--threads`); NumPy has one in the service.
Turns alternate, so that a busy machine slows both. One request with many points is a figure of its
own: a single point fills no matrix product, and reads all weights again for each block.

What is close. The sine of the largest angle to the exact space of 16 (J by jacrev, then eigh in
float64), at points whose relative gap after eigenvalue 16 is at least 1 %: where two eigenvalues
are nearly equal, which of them is the sixteenth is rounding. At all points the pairs must be pairs
of A: ‖A t - λ t‖ / λ with λ = tᵀ A t.
"""

import base64
import math
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import torch
from interleave import Figure, ratios, seconds

from localmoments.model import Model
from serving import artefacts, load
from serving.bare import autoencoder
from serving.calls import Array, dumped
from serving.roster import Setup
from serving.sampling import JSON, NPY
from serving.servers import Running
from serving.wire import request

RANK, POINTS, TOGETHER = 16, 8, 32
LEAST_GAP = 0.01
WIDTHS = (784, 3136, 12288)
WIDEST_EXACT = 3136


def figures(setup: Setup, rounds: int, window: float) -> Iterator[Figure]:
    yield from against_torch(setup, rounds)
    yield from by_width(setup, rounds)


def against_torch(setup: Setup, rounds: int) -> Iterator[Figure]:
    model = Model.open(setup.artefact, threads=setup.threads)
    points = model.start_points()[:TOGETHER]
    x = model.manifest.normaliser.to_user(points)
    asked, together = [_get(row) for row in x[:POINTS]], _post(x)
    torch.set_num_threads(setup.threads)
    exact = Exact(setup.artefact, model)
    ours: list[float] = []
    each: list[float] = []
    theirs: list[float] = []
    with setup.service() as server:
        found = _tangents(server, together)
        for _ in range(rounds):
            ours.append(1e3 * _latency(server, asked))
            theirs.append(1e3 * exact.latency(points[:POINTS]))
            each.append(1e3 * seconds(lambda: _tangents(server, together)) / len(x))
    d = points.shape[1]
    yield Figure(f"top-{RANK} tangents, d = {d}, GET /moments", "ms", tuple(ours))
    yield Figure(f"each of {len(x)} points of one POST /moments", "ms", tuple(each))
    yield Figure("torch.func.jacrev + eigh", "ms", tuple(theirs))
    yield Figure("jacrev + eigh / GET /moments", "×", ratios(theirs, ours), at_least=10.0)
    yield Figure(f"jacrev + eigh / each of {len(x)} points", "×", ratios(theirs, each))
    yield from _agreement(exact, points, found)


def _agreement(exact: "Exact", points: Array, found: Array) -> Iterator[Figure]:
    sines, gaps, residuals = [], [], []
    for z, tangents in zip(points, found, strict=True):
        A = exact.a(z)
        values, vectors = np.linalg.eigh(A)  # ascending
        sines.append(subspace_distance(tangents, vectors[:, ::-1].T[:RANK]))
        gaps.append(float(1 - values[-RANK - 1] / values[-RANK]))
        residuals.append(_residual(A, tangents))
    told = [sine for sine, gap in zip(sines, gaps, strict=True) if gap >= LEAST_GAP]
    words = f"sine of the largest angle to the exact top-{RANK}"
    yield Figure(f"{words}, each of {len(sines)} points", "", tuple(sines))
    if told:
        worst = f"{words}, worst of {len(told)} points with a gap"
        yield Figure(worst, "", (max(told),), at_most=1e-3)
    yield Figure(f"relative gap after eigenvalue {RANK}", "", tuple(gaps))
    yield Figure("relative residual of a tangent, worst", "", (max(residuals),), at_most=1e-2)


def _residual(A: Array, tangents: Array) -> float:
    """The largest ‖A t - λ t‖ / λ; tangents (k, d)."""
    images = tangents @ A
    values = np.einsum("kd,kd->k", images, tangents)[:, None]
    return float((np.linalg.norm(images - values * tangents, axis=1) / values[:, 0]).max())


class Exact:
    """All eigenpairs of A = (J + Jᵀ)/2, by automatic differentiation."""

    def __init__(self, artefact: Path, model: Model) -> None:
        self._ae = autoencoder(artefact, model)
        level = model.noise_level(1)
        self._sigma = torch.from_numpy(level["sigma"]) if level else None

    def a(self, z: Array) -> Array:
        with torch.no_grad():
            J: Array = torch.func.jacrev(self._r)(torch.from_numpy(z)).double().numpy()
        return (J + J.T) / 2

    def eigen(self, z: Array) -> tuple[Array, Array]:
        with torch.no_grad():
            J = torch.func.jacrev(self._r)(torch.from_numpy(z))  # (d, d)
            values, vectors = torch.linalg.eigh((J + J.T) / 2)
        return values.numpy()[::-1], vectors.numpy().T[::-1]

    def latency(self, points: Array) -> float:
        """The median over different points, one after the other."""
        return statistics.median(seconds(partial(self.eigen, z)) for z in points)

    def _r(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self._ae(x[None], self._sigma)[0]
        return out


def subspace_distance(u: Array, v: Array) -> float:
    """‖(I - P_u) v‖₂ for orthonormal bases of the rows' spaces; u, v (k, d)."""
    p, q = np.linalg.qr(u.T.astype(np.float64))[0], np.linalg.qr(v.T.astype(np.float64))[0]
    return float(np.linalg.norm(q - p @ (p.T @ q), 2))


def by_width(setup: Setup, rounds: int) -> Iterator[Figure]:
    """One point by POST (12,288 numbers are too long for a URL), at a model of each width; beside
    jacrev + eigh as far as one can wait for it. The hidden layers stay as wide as they are."""
    medians = {}
    for d in WIDTHS:
        with tempfile.TemporaryDirectory(prefix="lm-models-") as name:
            artefact = artefacts.deep(Path(name), d)
            here = replace(setup, models=Path(name), artefact=artefact)
            times = tuple(_of_width(here, rounds))
            exact = 1e3 * _exactly(here) if WIDTHS[0] < d <= WIDEST_EXACT else None
        yield Figure(f"top-{RANK} tangents, d = {d:,}, POST /moments", "ms", times)
        medians[d] = statistics.median(times)
        if exact is not None:
            yield Figure(f"jacrev + eigh / POST /moments, d = {d:,}", "×", (exact / medians[d],))
    for d in WIDTHS[1:]:
        growth = medians[d] / medians[WIDTHS[0]] / (d / WIDTHS[0])
        yield Figure(f"cost at d = {d:,} / linear growth from 784", "×", (growth,), at_most=1.5)
    ends = medians[WIDTHS[-1]] / medians[WIDTHS[0]], WIDTHS[-1] / WIDTHS[0]
    yield Figure("exponent of d, 784 to 12,288", "", (math.log(ends[0]) / math.log(ends[1]),))


def _of_width(setup: Setup, rounds: int) -> Iterator[float]:
    model = Model.open(setup.artefact)
    x = model.manifest.normaliser.to_user(model.start_points()[:POINTS])
    asked = [_post(row[None]) for row in x]
    with setup.service() as server:
        _tangents(server, asked[0])
        for _ in range(rounds):
            yield 1e3 * _latency(server, asked)


def _exactly(setup: Setup) -> float:
    model = Model.open(setup.artefact)
    torch.set_num_threads(setup.threads)
    return Exact(setup.artefact, model).latency(model.start_points()[:1])


def _post(x: Array) -> bytes:
    path, kinds = f"/moments?rank={RANK}&include=tangents", {"content_type": NPY, "accept": JSON}
    return request("POST", path, dumped(x.astype("<f4")), **kinds)


def _get(x: Array) -> bytes:
    text = base64.urlsafe_b64encode(x.astype("<f4").tobytes()).decode().rstrip("=")
    path = f"/moments?rank={RANK}&include=tangents&x_b64={text}"
    return request("GET", path, accept="application/json")


def _tangents(server: Running, data: bytes) -> Array:
    """(k, d) for one point of a GET, (n, k, d) for those of a POST."""
    status, body = load.run(load.fetch(server.address, data))
    if status != 200:
        raise RuntimeError(f"/moments answered {status}: {body[:300]!r}")
    return np.asarray(orjson.loads(body)["tangents"])


def _latency(server: Running, asked: list[bytes]) -> float:
    """The median over different points, one after the other."""

    def once(data: bytes) -> float:
        return seconds(lambda: load.run(load.fetch(server.address, data)))

    return statistics.median(once(data) for data in asked)
