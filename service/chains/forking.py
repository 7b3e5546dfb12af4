"""How a branch of a chain may differ from its origin."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localmoments.errors import InputError
from localmoments.model import Model
from service.chains.plan import Plan
from service.chains.planning import check_kernel, check_scale, own_scale


@dataclass(frozen=True)
class Change:
    """How a fork differs from its origin; None: not at all."""

    seed: int | None = None
    scale: Sequence[float] | None = None
    floor: float | None = None
    kernel: str | None = None
    from_step: int | None = None


def branched(plan: Plan, model: Model, change: Change) -> Plan:
    kernels = model.manifest.kernels
    kernel = plan.kernel if change.kernel is None else change.kernel
    if kernel not in kernels:
        raise InputError(
            f"{plan.model} has no kernel {kernel[:50]!r}; it has {', '.join(kernels)}."
        )
    if kernels[kernel].space != kernels[plan.kernel].space:
        raise InputError(
            f"{kernel} walks in {kernels[kernel].space} space and {plan.kernel} does not; start a "
            'new chain from this one instead: "start": {"chain": ...}.'
        )
    floor = plan.floor if change.floor is None else change.floor
    check_kernel(model, kernel, plan.clamp is not None, plan.metropolis, floor)
    own = plan.scale
    if kernel != plan.kernel:
        own = (own_scale(model, kernel, plan.clamp is not None),)
    scale = tuple(change.scale) if change.scale else own
    check_scale(model, kernel, scale, plan.clamp is not None)
    return replace(
        plan,
        kernel=kernel,
        scale=scale,
        floor=floor,
        seed=plan.seed if change.seed is None else change.seed,
        request="",
    )
