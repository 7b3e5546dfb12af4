"""From what a caller asks to a plan and a first state, with everything checked on the way."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localmoments import starts
from localmoments.arrays import FARTHEST, Floats, Reals
from localmoments.chain import first_state
from localmoments.clamp import KERNELS as CLAMPED
from localmoments.clamp import default_scale as clamped_scale
from localmoments.errors import InputError, StaleChainError
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.metropolis import KERNELS as CORRECTED
from localmoments.model import Model
from localmoments.rows import check_range, check_rows
from localmoments.transition import Clamp
from service.chains.plan import Plan, digest, fingerprint
from service.chains.spec import THIN, WALKERS, ChainSpec, Known, Start, StepRange
from service.engine.repository import Repository

QUICK_VALUES = 2**14  # of a first state, which the event loop makes by itself
SEED_BITS = 53  # so that every JSON reader keeps it exactly


@dataclass(frozen=True)
class Opened:
    """A chain about to be, without its state."""

    model: Model
    plan: Plan
    points: Reals | None  # (1 or W, d), in the user's units, where they were given


def opened(
    model: Model, making: ChainSpec, stretch: StepRange, points: Reals | None, request: str = ""
) -> Opened:
    """A plan for a new chain; `points` are those of `start`, wherever they came from."""
    m = model.manifest
    kernel = _kernel(model, making)
    check_kernel(model, kernel, making.clamp is not None, bool(making.metropolis), making.floor)
    start = making.start or Start()
    walkers = _walkers(making.walkers, points)
    scale = tuple(making.scale or (own_scale(model, kernel, making.clamp is not None),))
    check_scale(model, kernel, scale, making.clamp is not None)
    plan = Plan(
        model=m.reference,
        fingerprint=fingerprint(m),
        kernel=kernel,
        scale=scale,
        floor=making.floor or 0.0,
        seed=secrets.randbits(SEED_BITS) if making.seed is None else making.seed,
        walkers=walkers,
        burn_in=making.burn_in or 0,
        thin=stretch.thin or min(THIN, stretch.steps),
        emit=stretch.emit or m.default_emit,
        start=described(start),
        clamp=None if making.clamp is None else clamped(model, making.clamp, walkers),
        metropolis=bool(making.metropolis),
        request=request,
    )
    return Opened(model, plan, points)


def _kernel(model: Model, making: ChainSpec) -> str:
    """The kernel asked for, or the model's default; with known columns, one that can condition."""
    m, name = model.manifest, making.kernel
    if name is not None and name not in m.kernels:
        raise InputError(
            f"{m.reference} has no kernel {name[:50]!r}; it has {', '.join(m.kernels)}."
        )
    if name is None and making.clamp is not None and m.default_kernel not in CLAMPED:
        return next((k for k in CLAMPED if k in m.kernels), m.default_kernel)
    if name is None and making.metropolis and m.default_kernel not in CORRECTED:
        return next((k for k in CORRECTED if k in m.kernels), m.default_kernel)
    return name or m.default_kernel


def check_kernel(
    model: Model, kernel: str, clamped: bool, metropolis: bool, floor: float | None
) -> None:
    """Refuse a kernel that cannot condition on known columns, or cannot be corrected."""
    m = model.manifest
    if clamped and (kernel not in CLAMPED or kernel not in m.kernels):
        raise InputError(f"`clamp` works with the kernels {' and '.join(CLAMPED)}, not {kernel}.")
    if not metropolis:
        return
    if clamped:
        raise InputError("`metropolis` cannot be combined with `clamp`.")
    if floor:
        raise InputError("`metropolis` cannot be combined with `floor`.")
    if kernel not in CORRECTED or kernel not in m.kernels:
        raise InputError(
            f"`metropolis` works with the kernels {' and '.join(CORRECTED)}, not {kernel}."
        )
    if m.covariance_scale != "absolute":
        raise InputError(
            f"`metropolis` needs the score, and the scale of the score of {m.reference} is unknown."
        )
    if kernel == "moment" and m.input_dims > FULL_JACOBIAN_DIMS:
        raise InputError(
            f"`metropolis` with kernel moment works for up to {FULL_JACOBIAN_DIMS} columns; "
            f"{m.reference} has {m.input_dims}. Use kernel walkjump."
        )


def check_scale(model: Model, kernel: str, scale: Sequence[float], clamped: bool) -> None:
    """Refuse a clamped `gibbs` step at noise levels that the model was not trained for."""
    m = model.manifest
    if not clamped or kernel != "gibbs" or m.noise_levels is None:
        return
    low, high = (level / m.sigma for level in m.noise_levels)
    if not all(low * (1 - 1e-6) <= s <= high * (1 + 1e-6) for s in scale):
        raise InputError(
            f"With `clamp`, `scale` must be from {low:g} to {high:g} for {m.reference}: a step "
            "begins at the noise level scale × σ, which must be one that the model was trained for."
        )


def own_scale(model: Model, kernel: str, clamped: bool) -> float:
    """The scale of a chain that does not say one."""
    m = model.manifest
    return clamped_scale(m, kernel) if clamped else m.kernels[kernel].scale


def _walkers(asked: int | None, points: Reals | None) -> int:
    if points is None:
        return asked or WALKERS
    if asked is not None and len(points) not in (1, asked):
        raise InputError(f"start has {len(points)} points for {asked} walkers; give one, or all.")
    return asked or len(points)


def described(start: Start) -> str:
    """Short enough to keep, exact enough to know the same start again."""
    if start.kind == "points":
        return f"points {digest(start.points)}"
    return f"chain {start.chain}" if start.kind == "chain" else start.kind


def clamped(model: Model, known: Known, walkers: int) -> Clamp:
    """In the model's units."""
    d = model.manifest.input_dims
    for name, array in (("mask", known.mask), ("values", known.values), ("std", known.std)):
        if array.shape[1] != d and not (name == "std" and array.shape == (1, 1)):
            raise InputError(
                f"clamp.{name} has {array.shape[1]} columns, but a row has {d} columns."
            )
        if len(array) not in (1, walkers):
            raise InputError(
                f"clamp.{name} has {len(array)} rows for {walkers} walkers; give one, or all."
            )
    if np.any(known.std > 0) and model.manifest.covariance_scale != "absolute":
        raise InputError(
            f"`clamp.std` needs covariances of known scale, which {model.manifest.reference} does "
            "not have. Leave it out."
        )
    if not np.all(known.std >= 0):
        raise InputError("clamp.std has a negative number.")
    units = model.manifest.normaliser
    values = np.where(known.mask, known.values, units.shift)
    check_range(model, values, "clamp.values")
    std = np.where(known.mask, np.minimum(known.std / units.scale, FARTHEST), 0.0)
    return Clamp(known.mask, units.to_model(values), std.astype(np.float32))


def is_quick(chain: Opened) -> bool:
    """Is `begun` done sooner than a thread would have it?"""
    m, plan = chain.model.manifest, chain.plan
    return m.kernels[plan.kernel].space == "input" and plan.walkers * m.input_dims <= QUICK_VALUES


def begun(chain: Opened) -> Floats:
    """The state at step 0; (W, n). Runs a graph where the kernel walks in hidden space."""
    plan, model = chain.plan, chain.model
    if chain.points is not None:
        x = np.repeat(
            model.manifest.normaliser.to_model(chain.points), plan.walkers // len(chain.points), 0
        )
    elif plan.start == "noise":
        x = starts.from_noise(model, plan.walkers, plan.seed)
    else:
        x = starts.from_data(model, plan.walkers, plan.seed)
    return first_state(model, plan.kernel, x, plan.clamp)


def check_points(model: Model, points: Reals) -> None:
    check_rows(model, points, "start.points")


def pinned_model(models: Repository, plan: Plan, chain: str) -> Model:
    """The chain's own version of its model, with the very files that it began with."""
    versions = models.catalogue.models.get(plan.model.partition("@")[0], {})
    model = versions.get(plan.model.partition("@")[2])
    if model is None:
        raise StaleChainError(f"Chain {chain} belongs to {plan.model}, which is no longer served.")
    if fingerprint(model.manifest) != plan.fingerprint:
        raise StaleChainError(f"Chain {chain} was made with other files of {plan.model}.")
    return model


def check_same(plan: Plan, model: Model, making: ChainSpec, chain: str) -> None:
    """What a call says again about a chain must be what the chain is."""
    said = _said(plan, model, making)
    different = [name for name, (asked, is_) in said.items() if not _equal(asked, is_)]
    if different:
        raise InputError(
            f"{' and '.join(different)} of chain {chain} cannot be changed; fork it, or start a "
            "new chain from it."
        )


def _said(plan: Plan, model: Model, making: ChainSpec) -> dict[str, tuple[Any, Any]]:
    names = ("walkers", "burn_in", "kernel", "floor", "seed", "metropolis")
    pairs = {name: (getattr(making, name), getattr(plan, name)) for name in names}
    pairs["scale"] = making.scale and tuple(making.scale), plan.scale
    pairs["start"] = making.start and described(making.start), plan.start
    pairs["model"] = making.model, _as_asked(plan.model, making.model)
    pairs["clamp"] = _clamp_pair(plan, model, making.clamp)
    return {name: pair for name, pair in pairs.items() if pair[0] is not None}


def _as_asked(reference: str, asked: str | None) -> str:
    """`name` is as good as `name@version` here: the chain knows its version."""
    return reference if asked is None or "@" in asked else reference.partition("@")[0]


def _clamp_pair(plan: Plan, model: Model, known: Known | None) -> tuple[Any, Any]:
    if known is None:
        return None, None
    return _flat(clamped(model, known, plan.walkers)), plan.clamp and _flat(plan.clamp)


def _flat(clamp: Clamp) -> list[list[list[float]]]:
    return [clamp.mask.tolist(), clamp.values.tolist(), clamp.std.tolist()]


def _equal(asked: Any, is_: Any) -> bool:
    return bool(asked == is_)
