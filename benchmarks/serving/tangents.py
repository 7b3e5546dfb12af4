"""Top-16 tangents at a point: GET /moments against torch.func.jacrev + eigh on the same weights,
and what they cost as the rows become wider."""

import base64
import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from interleave import Figure, ratios, seconds

from service.engine.model import Model
from serving import artefacts, load
from serving.bare import autoencoder
from serving.calls import Array, dumped
from serving.roster import Setup
from serving.sampling import JSON, NPY
from serving.servers import Running
from serving.wire import request

RANK, POINTS = 16, 8
WIDTHS = (784, 3136, 12288)


def figures(setup: Setup, rounds: int, window: float) -> Iterator[Figure]:
    yield from against_torch(setup, rounds)
    yield from by_width(setup, rounds)


def against_torch(setup: Setup, rounds: int) -> Iterator[Figure]:
    model = Model.open(setup.artefact, threads=setup.threads)
    points = model.start_points()[:POINTS]
    asked = [_get(x) for x in model.manifest.normaliser.to_user(points)]
    torch.set_num_threads(setup.threads)
    exact = Exact(setup.artefact, model)
    ours: list[float] = []
    theirs: list[float] = []
    with setup.service() as server:
        found = [_tangents(server, data) for data in asked]
        for _ in range(rounds):
            ours.append(1e3 * _latency(server, asked))
            theirs.append(1e3 * statistics.median(seconds(partial(exact.eigen, z)) for z in points))
    yield Figure(f"top-{RANK} tangents, d = {points.shape[1]}, GET /moments", "ms", tuple(ours))
    yield Figure("torch.func.jacrev + eigh", "ms", tuple(theirs))
    yield Figure("jacrev + eigh / GET /moments", "×", ratios(theirs, ours), at_least=10.0)
    yield from _agreement(exact, points, found)


def _agreement(exact: "Exact", points: Array, found: list[Array]) -> Iterator[Figure]:
    """How far the two subspaces lie apart at each point; a small gap makes that hard to tell."""
    distances, gaps = [], []
    for z, tangents in zip(points, found, strict=True):
        values, vectors = exact.eigen(z)
        distances.append(subspace_distance(tangents, vectors[:RANK]))
        gaps.append(float(1 - values[RANK] / values[RANK - 1]))
    words = f"sine of the largest angle to the exact top-{RANK}"
    yield Figure(f"{words}, each of {len(points)} points", "", tuple(distances))
    yield Figure(f"{words}, worst point", "", (max(distances),), at_most=1e-3)
    yield Figure(f"relative gap after eigenvalue {RANK}", "", tuple(gaps))


class Exact:
    """All eigenpairs of A = (J + Jᵀ)/2, by automatic differentiation."""

    def __init__(self, artefact: Path, model: Model) -> None:
        self._ae = autoencoder(artefact, model)
        level = model.noise_level(1)
        self._sigma = torch.from_numpy(level["sigma"]) if level else None

    def eigen(self, z: Array) -> tuple[Array, Array]:
        with torch.no_grad():
            J = torch.func.jacrev(self._r)(torch.from_numpy(z))  # (d, d)
            values, vectors = torch.linalg.eigh((J + J.T) / 2)
        return values.numpy()[::-1], vectors.numpy().T[::-1]

    def _r(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self._ae(x[None], self._sigma)[0]
        return out


def subspace_distance(u: Array, v: Array) -> float:
    """‖(I - P_u) v‖₂ for orthonormal bases of the rows' spaces; u, v (k, d)."""
    p, q = np.linalg.qr(u.T.astype(np.float64))[0], np.linalg.qr(v.T.astype(np.float64))[0]
    return float(np.linalg.norm(q - p @ (p.T @ q), 2))


def by_width(setup: Setup, rounds: int) -> Iterator[Figure]:
    """One point by POST (12,288 numbers are too long for a URL), at random models of each width."""
    medians = {}
    for d in WIDTHS:
        with tempfile.TemporaryDirectory(prefix="lm-models-") as name:
            artefact = artefacts.deep(Path(name), d)
            here = replace(setup, models=Path(name), artefact=artefact)
            times = tuple(_of_width(here, rounds))
        yield Figure(f"top-{RANK} tangents, d = {d:,}, POST /moments", "ms", times)
        medians[d] = statistics.median(times)
    for d in WIDTHS[1:]:
        growth = medians[d] / medians[WIDTHS[0]] / (d / WIDTHS[0])
        yield Figure(f"cost at d = {d:,} / linear growth from 784", "×", (growth,), at_most=1.5)


def _of_width(setup: Setup, rounds: int) -> Iterator[float]:
    model = Model.open(setup.artefact)
    x = model.manifest.normaliser.to_user(model.start_points()[:POINTS])
    path, kinds = f"/moments?rank={RANK}&include=tangents", {"content_type": NPY, "accept": JSON}
    asked = [request("POST", path, dumped(row[None].astype("<f4")), **kinds) for row in x]
    with setup.service() as server:
        _tangents(server, asked[0])
        for _ in range(rounds):
            yield 1e3 * _latency(server, asked)


def _get(x: Array) -> bytes:
    text = base64.urlsafe_b64encode(x.astype("<f4").tobytes()).decode().rstrip("=")
    path = f"/moments?rank={RANK}&include=tangents&x_b64={text}"
    return request("GET", path, accept="application/json")


def _tangents(server: Running, data: bytes) -> Array:
    status, body = load.run(load.fetch(server.address, data))
    if status != 200:
        raise RuntimeError(f"/moments answered {status}: {body[:300]!r}")
    answer: Any = json.loads(body)["tangents"]
    return np.asarray(answer).reshape(RANK, -1)


def _latency(server: Running, asked: list[bytes]) -> float:
    """The median over different points, one after the other."""

    def once(data: bytes) -> float:
        return seconds(lambda: load.run(load.fetch(server.address, data)))

    return statistics.median(once(data) for data in asked)
