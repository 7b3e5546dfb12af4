"""Traces, asymmetry and typicality through a model's graphs (localmoments.trust has the meaning).

    t(x) = ‖x − r(x)‖² − σ² tr J(x)

`typicality_statistic` is synchronous, for the trainer, which records the percentiles of t among
held-out rows in the manifest. The service computes the same t from the same probes.
"""

from localmoments.arrays import Doubles, Floats
from localmoments.model import Model
from localmoments.trust import _repeated, asymmetries, traces
from service.engine.executor import Executor


async def jacobian_traces(executor: Executor, model: Model, z: Floats, sigma: float) -> Doubles:
    """tr J of every row; (n, d) -> (n,)."""
    level = model.noise_level(len(z), sigma)
    out = await executor.run(model, "moments", x=z, v=_repeated(z), **level)
    return await executor.call(traces, out["products"])


async def jacobian_norms(
    executor: Executor, model: Model, z: Floats, sigma: float
) -> tuple[Doubles, Doubles]:
    """tr J and ‖J − Jᵀ‖ / ‖J + Jᵀ‖ of every row; (n, d) -> (n,), (n,)."""
    v, level = _repeated(z), model.noise_level(len(z), sigma)
    out = await executor.run(model, "jacobian", x=z, v=v, w=v, **level)
    asymmetry = await executor.call(asymmetries, out["jvp"], out["vjp"])
    return await executor.call(traces, out["jvp"]), asymmetry
