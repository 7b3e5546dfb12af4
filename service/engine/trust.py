"""Traces, asymmetry and typicality through a model's graphs (service.core.trust has the meaning).

    t(x) = ‖x − r(x)‖² − σ² tr J(x)

`typicality_statistic` is synchronous, for the trainer, which records the percentiles of t among
held-out rows in the manifest. The service computes the same t from the same probes.
"""

from collections.abc import Iterator

import numpy as np

from service.core.trust import asymmetries, probes, traces
from service.core.types import Doubles, Floats
from service.engine.model import Model
from service.engine.worker import Worker

CHUNK_VALUES = 2**20  # numbers in the vectors of one graph call


def typicality_statistic(model: Model, z: Floats, sigma: float) -> Doubles:
    """t of rows in the model's units; (n, d) -> (n,)."""
    found = []
    for rows in chunks(len(z), CHUNK_VALUES // probes(z.shape[1]).size):
        level = model.noise_level(len(z[rows]), sigma)
        out = model.run("moments", x=z[rows], v=_repeated(z[rows]), **level)
        found.append(statistic(z[rows], out["mean"], model.alpha(sigma), traces(out["products"])))
    return np.concatenate(found)


def statistic(z: Floats, r: Floats, alpha: float, trace: Doubles) -> Doubles:
    """‖z − r‖² − σ² tr J; (n,)."""
    return moved(z, r) - alpha * trace


def dimension(z: Floats, r: Floats, alpha: float, trace: Doubles) -> Doubles:
    """Local intrinsic dimension, tr J + ‖r − z‖²/σ²; (n,)."""
    return trace + moved(z, r) / alpha


def moved(z: Floats, r: Floats) -> Doubles:
    """‖z − r‖²; (n,)."""
    away = np.subtract(z, r, dtype=np.float64)
    squares: Doubles = np.vecdot(away, away)
    return squares


async def jacobian_traces(worker: Worker, model: Model, z: Floats, sigma: float) -> Doubles:
    """tr J of every row; (n, d) -> (n,)."""
    level = model.noise_level(len(z), sigma)
    out = await worker.run(model, "moments", x=z, v=_repeated(z), **level)
    return await worker.call(traces, out["products"])


async def jacobian_norms(
    worker: Worker, model: Model, z: Floats, sigma: float
) -> tuple[Doubles, Doubles]:
    """tr J and ‖J − Jᵀ‖ / ‖J + Jᵀ‖ of every row; (n, d) -> (n,), (n,)."""
    v, level = _repeated(z), model.noise_level(len(z), sigma)
    out = await worker.run(model, "jacobian", x=z, v=v, w=v, **level)
    asymmetry = await worker.call(asymmetries, out["jvp"], out["vjp"])
    return await worker.call(traces, out["jvp"]), asymmetry


def chunks(rows: int, most: int) -> Iterator[slice]:
    step = max(1, most)
    return (slice(start, start + step) for start in range(0, rows, step))


def _repeated(z: Floats) -> Floats:
    """The probes for every row; (n, k, d)."""
    v = probes(z.shape[1])
    return np.ascontiguousarray(np.broadcast_to(v, (len(z), *v.shape)))
