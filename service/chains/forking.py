"""How a branch of a chain may differ from its origin."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localmoments.chain import make_transition
from localmoments.errors import InputError
from localmoments.model import Model
from service.chains.plan import Plan


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
    transition = make_transition(
        model,
        kernel=kernel,
        scale=change.scale or (plan.scale if kernel == plan.kernel else None),
        floor=floor,
        seed=plan.seed if change.seed is None else change.seed,
        clamp=plan.clamp,
        metropolis=plan.metropolis,
    )
    return replace(
        plan,
        kernel=kernel,
        scale=tuple(transition.scale),
        floor=floor,
        seed=transition.seed,
        request="",
    )
