"""Plans: turn what a caller asks for into the complete, stored description of a chain.

A plan is everything about a chain except its state. The store keeps it next to the state as JSON.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import orjson

from localmoments.arrays import Floats, Reals
from localmoments.artefact import WEIGHTS, Manifest
from localmoments.chain import (
    check_start_points,
    make_clamp,
    make_transition,
    start_state,
    step_cost,
)
from localmoments.chain_state import Clamp, Emission, Transition
from localmoments.errors import InputError, StaleChainError, TooLargeError
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.model import Model
from service.chains.spec import THIN, WALKERS, CallSpec, ChainSpec
from service.engine.chain_job import StepRange
from service.engine.repository import ModelRepository

FORMAT = 1  # of the stored JSON
DENSE_VALUES = 2**20  # numbers in the d × d matrices of all walkers of a chain
CHEAP_VALUES = 2**14  # numbers in a first state that is cheaper to make than to hand to a thread


@dataclass(frozen=True)
class Plan:
    """Everything about a chain except its state."""

    model: str  # name@version
    fingerprint: str  # of the weights and graphs
    transition: Transition
    walkers: int
    burn_in: int
    thin: int  # default of calls that do not set it
    emit: Emission  # default of calls that do not set it
    start: str  # "data", "noise", "points <digest>" or "chain <id>"
    request: str = ""  # digest of the request that created the chain, if it had an idempotency key


@dataclass(frozen=True)
class ChainLimits:
    """The most that one call may ask for."""

    walkers: int
    row_steps: int  # walkers × steps × graph calls of a step
    values: int  # numbers in a response that is not streamed


@dataclass(frozen=True)
class Change:
    """How a fork differs from its origin. None means no difference."""

    seed: int | None = None
    scale: Sequence[float] | None = None
    floor: float | None = None
    kernel: str | None = None
    from_step: int | None = None


def make_plan(
    model: Model, spec: ChainSpec, call: CallSpec, points: Reals | None, request: str = ""
) -> Plan:
    """Plan a new chain.

    Args:
        points: the start points, (1 or W, d) in the units of the data, if `spec` names any.
        request: digest of the request, if it has an idempotency key.

    Raises:
        InputError: the parts do not fit the model or each other.
    """
    m = model.manifest
    walkers = spec.walkers or (WALKERS if points is None else len(points))
    if points is not None:
        check_start_points(model, points, walkers)
    transition = make_transition(
        model,
        kernel=spec.kernel,
        scale=spec.scale,
        floor=spec.floor or 0.0,
        seed=spec.seed,
        clamp=None if spec.clamp is None else make_clamp(model, spec.clamp, walkers),
        metropolis=bool(spec.metropolis),
    )
    return Plan(
        model=m.reference,
        fingerprint=compute_fingerprint(m),
        transition=transition,
        walkers=walkers,
        burn_in=spec.burn_in or 0,
        thin=call.thin or min(THIN, call.steps),
        emit=call.emit or ("noisy" if m.default_emit == "noisy" else "mean"),
        start=describe_start(spec) or "data",
        request=request,
    )


def fork_plan(plan: Plan, model: Model, change: Change) -> Plan:
    """Return the plan of a fork.

    Raises:
        InputError: the kernel is unknown, or its state lies in another space.
    """
    old = plan.transition
    kernel = change.kernel or old.kernel
    transition = make_transition(
        model,
        kernel=kernel,
        scale=change.scale or (old.scale if kernel == old.kernel else None),
        floor=old.floor if change.floor is None else change.floor,
        seed=old.seed if change.seed is None else change.seed,
        clamp=old.clamp,
        metropolis=old.metropolis,
    )
    kernels = model.manifest.kernels
    if kernels[kernel].space != kernels[old.kernel].space:
        raise InputError(
            f"Kernel {kernel} has its state in {kernels[kernel].space} space and {old.kernel} does "
            'not. Start a new chain from this one instead: "start": {"chain": ...}.'
        )
    return replace(plan, transition=transition, request="")


def make_start_state(model: Model, plan: Plan, points: Reals | None) -> Floats:
    """Return the state at step 0; (W, n). Runs a graph if the kernel's state is hidden."""
    default: Literal["data", "noise"] = "noise" if plan.start == "noise" else "data"
    start = default if points is None else points
    return start_state(model, plan.transition, plan.walkers, start)


def is_start_cheap(model: Model, plan: Plan) -> bool:
    """Tell whether `make_start_state` may run on the event loop."""
    m = model.manifest
    is_input = m.kernels[plan.transition.kernel].space == "input"  # runs no graph
    return is_input and plan.walkers * m.input_dims <= CHEAP_VALUES


def resolve_steps(plan: Plan, call: CallSpec, from_step: int) -> StepRange:
    """Fill in the defaults of a call. `steps` does not count what is left of the burn-in."""
    return StepRange(
        from_step=from_step,
        to_step=max(from_step, plan.burn_in) + call.steps,
        burn_in=plan.burn_in,
        thin=call.thin or plan.thin,
        emit=call.emit or plan.emit,
    )


def check_limits(
    limits: ChainLimits, plan: Plan, model: Model, steps: StepRange, streamed: bool
) -> None:
    """Refuse a call that is too large.

    Raises:
        TooLargeError: says what is too large and how to get it.
    """
    if plan.walkers > limits.walkers:
        raise TooLargeError(f"{plan.walkers} walkers are more than the {limits.walkers} allowed.")
    length, cost = steps.to_step - steps.from_step, step_cost(model, plan.transition)
    row_steps = plan.walkers * length * cost
    if row_steps > limits.row_steps:
        calls = f" of {cost} graph calls each" if cost > 1 else ""
        raise TooLargeError(
            f"{plan.walkers} walkers × {length} steps{calls} are {row_steps} row-steps; the limit "
            f"for one call is {limits.row_steps}. Ask for fewer steps, then resume the chain."
        )
    _check_dense(plan, model)
    values = steps.samples * plan.walkers * model.manifest.input_dims
    if values > limits.values and not streamed:
        raise TooLargeError(
            f"The response would hold {values} numbers; the limit without streaming is "
            f"{limits.values}. Stream it, or ask for fewer steps or a larger `thin`."
        )


def _check_dense(plan: Plan, model: Model) -> None:
    """Bound the matrices of one step, which are built on the thread that serves all callers."""
    d, transition = model.manifest.input_dims, plan.transition
    is_dense = transition.clamp is not None or (
        transition.metropolis and transition.kernel == "moment"
    )
    if is_dense and d <= FULL_JACOBIAN_DIMS and plan.walkers * d * d > DENSE_VALUES:
        raise TooLargeError(
            f"{plan.walkers} walkers with {d} columns need matrices that are too large for a step "
            f"with `clamp` or `metropolis`. The limit is {DENSE_VALUES // d**2} walkers per chain."
        )


def find_pinned_model(models: ModelRepository, plan: Plan, chain: str) -> Model:
    """Return the model version of a chain.

    Raises:
        StaleChainError: it is no longer served, or its files have changed.
    """
    name, _, version = plan.model.partition("@")
    model = models.catalogue.models.get(name, {}).get(version)
    if model is None:
        raise StaleChainError(f"Chain {chain} belongs to {plan.model}, which is no longer served.")
    if compute_fingerprint(model.manifest) != plan.fingerprint:
        raise StaleChainError(f"Chain {chain} was created with other files of {plan.model}.")
    return model


def check_unchanged(plan: Plan, model: Model, spec: ChainSpec, chain: str) -> None:
    """Check that what a call repeats about a chain equals the chain's plan.

    Raises:
        InputError: names the fields that differ.
    """
    transition = plan.transition
    pairs: dict[str, tuple[Any, Any]] = {  # asked for, planned
        "walkers": (spec.walkers, plan.walkers),
        "burn_in": (spec.burn_in, plan.burn_in),
        "kernel": (spec.kernel, transition.kernel),
        "floor": (spec.floor, transition.floor),
        "seed": (spec.seed, transition.seed),
        "metropolis": (spec.metropolis, transition.metropolis),
        "scale": (spec.scale and tuple(spec.scale), transition.scale),
        "start": (describe_start(spec), plan.start),
        "model": (spec.model, _strip_version(plan.model, spec.model)),
    }
    if spec.clamp is not None:
        clamp = make_clamp(model, spec.clamp, plan.walkers)
        pairs["clamp"] = _to_lists(clamp), transition.clamp and _to_lists(transition.clamp)
    different = [name for name, (asked, planned) in pairs.items() if asked not in (None, planned)]
    if different:
        raise InputError(
            f"{' and '.join(different)} of chain {chain} cannot be changed. Fork the chain, or "
            "start a new chain from it."
        )


def _strip_version(reference: str, asked: str | None) -> str:
    """Return name@version, or the name alone if the caller named no version."""
    return reference if asked is None or "@" in asked else reference.partition("@")[0]


def _to_lists(clamp: Clamp) -> list[Any]:
    return [clamp.mask.tolist(), clamp.values.tolist(), clamp.std.tolist()]


def describe_start(spec: ChainSpec) -> str | None:
    """Return a short text that is equal for equal starts; None for the default."""
    if spec.start == "points":
        return f"points {digest(spec.start_points)}"
    return f"chain {spec.start_chain}" if spec.start == "chain" else spec.start


def compute_fingerprint(manifest: Manifest) -> str:
    """Hash the weights and graphs of a model, but not its card or figures."""
    names = {WEIGHTS, *(graph.file for graph in manifest.graphs.values())}
    return digest([manifest.files[name] for name in sorted(names)])


def digest(value: Any) -> str:
    """Hash a value that JSON can hold, NumPy arrays included; 32 hexadecimal digits."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    return hashlib.sha256(text).hexdigest()[:32]


def dump_plan(plan: Plan) -> bytes:
    """Serialise a plan. The keys are a storage format: chains in Redis outlive releases."""
    transition = plan.transition
    fields: dict[str, Any] = {
        "format": FORMAT,
        "model": plan.model,
        "fingerprint": plan.fingerprint,
        "kernel": transition.kernel,
        "scale": transition.scale,
        "floor": transition.floor,
        "seed": transition.seed,
        "walkers": plan.walkers,
        "burn_in": plan.burn_in,
        "thin": plan.thin,
        "emit": plan.emit,
        "start": plan.start,
        "request": plan.request,
        "clamp": transition.clamp and _dump_clamp(transition.clamp),
    }
    if transition.metropolis:  # left out otherwise, for replicas of releases without it
        fields["metropolis"] = True
    return orjson.dumps(fields)


def load_plan(body: bytes) -> Plan:
    """Read a stored plan.

    Raises:
        ValueError, TypeError, KeyError: it was written by an incompatible release.
    """
    fields = orjson.loads(body)
    if fields.pop("format") != FORMAT:
        raise ValueError("the plan was written by another version of this software")
    clamp = fields.pop("clamp")
    if clamp is not None and "std" not in clamp:
        raise ValueError(
            "it has a clamp of an earlier version, which did not sample the other columns given "
            "the known ones; start a new chain"
        )
    transition = Transition(
        kernel=fields.pop("kernel"),
        seed=fields.pop("seed"),
        scale=tuple(fields.pop("scale")),
        floor=fields.pop("floor"),
        clamp=clamp and _load_clamp(**clamp),
        metropolis=fields.pop("metropolis", False),
    )
    return Plan(transition=transition, **fields)


def _dump_clamp(clamp: Clamp) -> dict[str, Any]:
    return {
        "mask": _encode(np.packbits(clamp.mask)),
        "values": _encode(clamp.values.astype("<f4")),
        "std": _encode(clamp.std.astype("<f4")),
        "shapes": [clamp.mask.shape, clamp.values.shape, clamp.std.shape],
    }


def _load_clamp(mask: str, values: str, std: str, shapes: Sequence[tuple[int, int]]) -> Clamp:
    bits = np.frombuffer(base64.b64decode(mask), np.uint8)
    known = np.unpackbits(bits, count=shapes[0][0] * shapes[0][1]).astype(bool)
    return Clamp(known.reshape(shapes[0]), _decode(values, shapes[1]), _decode(std, shapes[2]))


def _encode(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _decode(text: str, shape: tuple[int, int]) -> Floats:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape).astype(np.float32)
