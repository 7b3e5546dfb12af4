"""What single parts cost: the contraction penalty in a step, and a Jacobian product."""

from collections.abc import Callable, Iterator

import torch
from interleave import Figure, interleaved, ratios, seconds
from speed import BATCH
from torch import Tensor
from torch.nn import functional as F

from trainer.autoencoder import AutoEncoder
from trainer.config import Recipe
from trainer.fit import new_model
from trainer.prepare import held_out_rows, prepare

CALLS = 40  # of each in a turn
JVP_ROWS = 64


def of_penalty(recipe: Recipe, rounds: int) -> Iterator[Figure]:
    """A step with the exact one-layer contraction against the same step without it."""
    prepared = prepare(recipe)
    x, model, generator = held_out_rows(prepared, BATCH), new_model(prepared, 0), torch.Generator()

    def without() -> Tensor:
        logits = model.decode_logits(model.encode(x))
        return F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()

    contractive = stepper(model, lambda: prepared.criterion(model, x, generator))
    a, b = in_turns(contractive, stepper(model, without), rounds)
    yield Figure("step of the contractive auto-encoder", "ms", a)
    yield Figure("step without its penalty", "ms", b)
    yield Figure("contractive step / plain step", "×", ratios(a, b), at_most=1.6)


def of_jacobian_product(recipe: Recipe, rounds: int) -> Iterator[Figure]:
    """J v of the deep model by our forward operations against torch.func.jvp."""
    prepared = prepare(recipe)
    x, model = held_out_rows(prepared, JVP_ROWS), new_model(prepared, 0)
    v = torch.randn_like(x)
    with torch.no_grad():
        a, b = in_turns(
            lambda: model.linearise(x).jvp(v), lambda: torch.func.jvp(model, (x,), (v,)), rounds
        )
    yield Figure(f"J v, written out, batch {JVP_ROWS}", "ms", a)
    yield Figure(f"J v, torch.func.jvp, batch {JVP_ROWS}", "ms", b)
    yield Figure("torch.func.jvp / written out", "×", ratios(b, a))


def stepper(model: AutoEncoder, loss: Callable[[], Tensor]) -> Callable[[], object]:
    """Forward, backward and Adam; each has an Adam of its own."""
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        adam.zero_grad()
        loss().backward()
        adam.step()

    return step


def in_turns(
    a: Callable[[], object], b: Callable[[], object], rounds: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Milliseconds a call; these are short, so there are four times the rounds."""
    torch.use_deterministic_algorithms(False)  # `fit` turned it on
    seconds(a, CALLS)
    seconds(b, CALLS)
    first, second = interleaved(
        lambda: 1e3 * seconds(a, CALLS), lambda: 1e3 * seconds(b, CALLS), 4 * rounds
    )
    return tuple(first), tuple(second)
