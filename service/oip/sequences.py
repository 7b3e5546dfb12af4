"""A sequence of requests is a chain: its id is made of the sequence's, so every replica knows it.

    sequence_start      opens the chain and walks it; sent again, it gives the same samples again
    neither             walks on
    sequence_end        walks on, or not at all with `steps` 0, and ends it

The caller's key and the model are part of the id, so that no two callers with keys meet.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from starlette.requests import Request

from localmoments.arrays import Named
from localmoments.errors import (
    InputError,
    RequestError,
    StaleChainError,
    UnusableAnswerError,
    UsedKeyError,
)
from service.caller import Caller
from service.chains.call import ChainCall, Sample
from service.chains.planning import digest
from service.chains.service import ChainService, make_chain_id
from service.chains.spec import STEPS, CallSpec, ChainSpec, Start
from service.http.dependencies import off_loop, walkable
from service.oip.request import Asked
from service.oip.response import Facts
from service.oip.schemas import InferParameters
from service.oip.targets import Surface
from service.oip.tensors import Array
from service.routes.sample import walked


@dataclass(frozen=True)
class Advanced:
    """A chain after a request."""

    model: str  # name@version
    outputs: Named
    facts: Facts


async def advanced(
    request: Request, surface: Surface, model: str, asked: Asked, caller: Caller
) -> Advanced:
    """`model` is a name, or name@version where the caller named a version."""
    said, chains = asked.parameters, walkable(request)
    _check(said)
    key = _key(model, said.sequence_id)
    chain = make_chain_id(caller, key)
    with _in_words_of(said.sequence_id, chain):
        if said.steps == 0:
            dtype = surface.model.manifest.normaliser.dtype
            return await _ended(chains, chain, said, caller, dtype)
        making, stretch = _making(model, asked), _stretch(said)
        if said.sequence_start:
            run = await _opened(chains, making, stretch, caller, key, said.sequence_id)
        else:
            run = await chains.resume(chain, making, stretch, caller)
        samples = await walked(run, request)
        if said.sequence_end:
            await chains.delete(chain, caller)
    stacked = await off_loop(sum(s.z.size for s in samples), _stacked, run, samples)
    return Advanced(run.plan.model, {"samples": stacked}, _facts(run, said))


def _check(said: InferParameters) -> None:
    if not said.sequence_id:
        raise InputError("A chain is a sequence: give it a sequence_id other than 0.")
    if said.steps == 0 and (said.sequence_start or not said.sequence_end):
        raise InputError("steps is 0, which only ends a chain: say sequence_end alone with it.")


def _key(model: str, sequence: int | str) -> str:
    """No Idempotency-Key holds a line break, so that none is the same; 42 is not "42"."""
    kind = "number" if isinstance(sequence, int) else "text"
    return f"sequence\n{model.partition('@')[0]}\n{kind}\n{sequence}"


def _making(model: str, asked: Asked) -> ChainSpec:
    said, points = asked.parameters, asked.inputs.get("start")
    if points is not None and said.start is not None:
        raise InputError("Give start as a parameter or as an input, not as both.")
    start = Start("points", points) if points is not None else said.start and Start(said.start)
    return ChainSpec(
        model=model,
        walkers=said.walkers,
        burn_in=said.burn_in,
        kernel=said.kernel,
        scale=_scale(said.scale),
        floor=said.floor,
        seed=said.seed,
        start=start or None,
    )


def _scale(said: float | str | None) -> list[float] | None:
    if said is None or isinstance(said, float | int):
        return None if said is None else [float(said)]
    try:
        scale = [float(word) for word in said.split(",")]
    except ValueError:
        raise InputError("scale is not a list of numbers with commas between them.") from None
    if not all(0 < each <= 1e6 for each in scale) or len(scale) > 1000:
        raise InputError("scale takes up to 1000 numbers above 0 and up to 1000000.")
    return scale


def _stretch(said: InferParameters) -> CallSpec:
    steps = STEPS if said.steps is None else said.steps
    seconds = said.timeout / 1e6 if said.timeout else None
    return CallSpec(steps, said.thin, said.emit, said.from_step, seconds=seconds)


async def _opened(
    chains: ChainService,
    making: ChainSpec,
    stretch: CallSpec,
    caller: Caller,
    key: str,
    sequence: int | str,
) -> ChainCall:
    start = making.start and vars(making.start)
    request = digest([vars(making) | {"start": start}, vars(stretch) | {"seconds": None}])
    try:
        return await chains.open(making, stretch, caller, (key, request))
    except (UsedKeyError, StaleChainError):
        raise StaleChainError(
            f"The sequence {sequence!r} is under way: go on with it, end it, or take another id."
        ) from None


async def _ended(
    chains: ChainService,
    chain: str,
    said: InferParameters,
    caller: Caller,
    dtype: np.dtype[np.floating],
) -> Advanced:
    standing = await chains.get(chain, caller)
    await chains.delete(chain, caller)
    facts = {"sequence_id": said.sequence_id, "chain": chain, "step": standing.record.head.step}
    none = np.empty((0, *standing.x.shape), dtype)
    return Advanced(standing.plan.model, {"samples": none}, facts)


def _stacked(run: ChainCall, samples: Sequence[Sample]) -> Array:
    m = run.model.manifest
    shape = (len(samples), run.plan.walkers, m.input_dims)
    stacked = np.empty(shape, m.normaliser.dtype)
    for place, sample in zip(stacked, samples, strict=True):
        place[:] = sample.x
    if not np.isfinite(stacked).all():
        raise UnusableAnswerError("The samples hold NaN or infinity in the units of the data.")
    return stacked


def _facts(run: ChainCall, said: InferParameters) -> Facts:
    return {
        "sequence_id": said.sequence_id,
        "chain": run.chain,
        "kernel": run.plan.transition.kernel,
        "seed": run.plan.transition.seed,
        "from_step": run.steps.from_step,
        "step": run.steps.to_step,
    }


@contextlib.contextmanager
def _in_words_of(sequence: int | str, chain: str) -> Iterator[None]:
    """Callers know their sequence, and not the chain's id."""
    try:
        yield
    except RequestError as error:
        own = f"of sequence {sequence!r}"
        sentence = str(error).replace(repr(chain), own).replace(chain, own)
        sentence = sentence.replace(" by DELETE", "")
        raise type(error)(sentence, retry_after=error.retry_after, **error.facts) from None
