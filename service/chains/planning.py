"""From what a caller asks to a plan and a first state, with everything checked on the way."""

from dataclasses import dataclass
from typing import Any, Literal

from localmoments.arrays import Floats, Reals
from localmoments.chain import check_start_points, make_clamp, make_transition, start_state
from localmoments.errors import InputError, StaleChainError
from localmoments.model import Model
from localmoments.transition import Clamp, ClampSpec
from service.chains.plan import Plan, digest, fingerprint
from service.chains.spec import THIN, WALKERS, ChainSpec, Start, StepRange
from service.engine.repository import Repository

QUICK_VALUES = 2**14  # of a first state, which the event loop makes by itself


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
    walkers = making.walkers or (WALKERS if points is None else len(points))
    if points is not None:
        check_start_points(model, points, walkers)
    transition = make_transition(
        model,
        kernel=making.kernel,
        scale=making.scale or None,
        floor=making.floor or 0.0,
        seed=making.seed,
        clamp=None if making.clamp is None else make_clamp(model, making.clamp, walkers),
        metropolis=bool(making.metropolis),
    )
    plan = Plan(
        model=m.reference,
        fingerprint=fingerprint(m),
        kernel=transition.kernel,
        scale=tuple(transition.scale),
        floor=transition.floor,
        seed=transition.seed,
        walkers=walkers,
        burn_in=making.burn_in or 0,
        thin=stretch.thin or min(THIN, stretch.steps),
        emit=stretch.emit or m.default_emit,
        start=described(making.start or Start()),
        clamp=transition.clamp,
        metropolis=transition.metropolis,
        request=request,
    )
    return Opened(model, plan, points)


def described(start: Start) -> str:
    """Short enough to keep, exact enough to know the same start again."""
    if start.kind == "points":
        return f"points {digest(start.points)}"
    return f"chain {start.chain}" if start.kind == "chain" else start.kind


def is_quick(chain: Opened) -> bool:
    """Is `begun` done sooner than a thread would have it?"""
    m, plan = chain.model.manifest, chain.plan
    return m.kernels[plan.kernel].space == "input" and plan.walkers * m.input_dims <= QUICK_VALUES


def begun(chain: Opened) -> Floats:
    """The state at step 0; (W, n). Runs a graph where the kernel walks in hidden space."""
    plan = chain.plan
    start: Literal["data", "noise"] = "noise" if plan.start == "noise" else "data"
    points = start if chain.points is None else chain.points
    return start_state(chain.model, plan.walk, plan.walkers, points)


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


def _clamp_pair(plan: Plan, model: Model, known: ClampSpec | None) -> tuple[Any, Any]:
    if known is None:
        return None, None
    return _flat(make_clamp(model, known, plan.walkers)), plan.clamp and _flat(plan.clamp)


def _flat(clamp: Clamp) -> list[list[list[float]]]:
    return [clamp.mask.tolist(), clamp.values.tolist(), clamp.std.tolist()]


def _equal(asked: Any, is_: Any) -> bool:
    return bool(asked == is_)
