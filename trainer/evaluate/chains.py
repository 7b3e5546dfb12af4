"""How many samples an evaluation draws, and how it draws them.

`Budget` says how many chains walk how far. `draw_chains` walks them with `localmoments.chain`, the
code that also serves requests, and keeps what they emit.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.chain import positions, start_state
from localmoments.chain_state import Transition
from localmoments.columns import Normaliser
from localmoments.model import Model
from trainer.progress import Advance

NARROW = 64  # columns up to which a chain's step costs next to nothing

Scalar = Callable[[Floats], Doubles]  # emitted rows (W, d) -> f functions of each (W, f)


@dataclass(frozen=True)
class Budget:
    """How much an evaluation draws and compares. The defaults are those of the published figures.

    `kept` samples of a walker are `thin` steps apart and follow `burn_in` steps that are discarded.
    """

    walkers: int = 500  # many short chains from noise
    kept: int = 20  # samples of each: 10,000 in all
    burn_in: int = 100
    thin: int = 5
    chains: int = 20  # few long chains from noise
    long_kept: int = 500  # samples of each: 10,000 in all
    lags: int = 100  # of the autocorrelation
    feature_rows: int = 5_000  # at most, in distances between sets and in nearest-row searches
    exact_rows: int = 2_000  # samples compared with the known law
    examples: int = 150_000  # rows that the classifier is trained on, counted with repetition
    baseline: bool = True  # compute k-means centres
    claims: bool = True  # test the paper's claims
    search: bool = True  # search every kernel's scale
    search_walkers: int = 200
    search_steps: int = 60
    search_kept: int = 5  # samples of each: the last ones, `thin` steps apart

    @property
    def set_rows(self) -> int:
        """The largest number of samples that are compared with the same number of real rows."""
        return min(self.feature_rows, self.walkers * self.kept, self.chains * self.long_kept)

    @property
    def many_steps(self) -> int:
        """Steps of each of the many short chains."""
        return self.burn_in + self.kept * self.thin

    @property
    def long_steps(self) -> int:
        """Steps of each of the few long chains."""
        return self.burn_in + self.long_kept * self.thin

    def kept_steps(self, count: int) -> range:
        """`count` steps after the burn-in, `thin` steps apart."""
        return range(self.burn_in + self.thin, self.burn_in + count * self.thin + 1, self.thin)


def budget_for(dims: int, *, quick: bool = False, search: bool = True) -> Budget:
    """The budget for rows of `dims` columns; `quick` is for a first impression in a minute.

    Chains of narrow tables walk further, because their steps are cheap and may be short.
    """
    budget = Budget(search=search and not quick)
    if dims <= NARROW:
        budget = replace(budget, burn_in=1_000, thin=20, lags=400, search_walkers=1_000,
                         search_steps=200, search_kept=1)  # fmt: skip
    if quick:
        budget = replace(budget, walkers=200, kept=5, burn_in=budget.burn_in // 2, long_kept=50,
                         feature_rows=1_000, exact_rows=1_000, examples=20_000,
                         baseline=False, claims=False)  # fmt: skip
    return budget


@dataclass(frozen=True)
class Samples:
    """What walkers emitted at the kept steps, and functions of what they emitted at every step."""

    steps: tuple[int, ...]  # (T,), the kept ones
    mean: Floats  # (T, W, d)
    noisy: Floats  # (T, W, d)
    traces: Doubles  # (all steps, W, f)

    def emitted(self, emission: str) -> Floats:
        """(T, W, d)"""
        return self.noisy if emission == "noisy" else self.mean

    @property
    def chains(self) -> NDArray[np.int64]:
        """The walker that emitted each row of `rows`; (T W,)."""
        return np.tile(np.arange(self.mean.shape[1]), len(self.steps))

    def rows(self, emission: str) -> Floats:
        """All samples as one set; (T W, d)."""
        x = self.emitted(emission)
        return x.reshape(-1, x.shape[2])

    def at(self, steps: range) -> "Samples":
        """Only the samples of these steps."""
        index = [i for i, step in enumerate(self.steps) if step in steps]
        return replace(self, steps=tuple(steps), mean=self.mean[index], noisy=self.noisy[index])


def draw_chains(
    model: Model,
    transition: Transition,
    walkers: int,
    steps: int,
    keep: Container[int],
    units: Normaliser,
    *,
    scalar: Scalar | None = None,
    advance: Advance = lambda count: None,
) -> Samples:
    """Walk from noise and keep what is emitted.

    Args:
        keep: the steps, from 1, whose samples are kept.
        units: samples are converted from the model's units to these.
        scalar: computed at every step from what the model emits by default.
        advance: called with the number of walkers after each step.

    Raises:
        DivergedError: the chains left the range of float32.
    """
    m = model.manifest
    same = np.array_equal(m.normaliser.shift, units.shift) and np.array_equal(
        m.normaliser.scale, units.scale
    )

    def convert(z: Floats) -> Floats:
        return z if same else units.to_model(m.normaliser.to_user(z))

    kept: list[tuple[int, Floats, Floats]] = []
    traces: list[Doubles] = []
    state = start_state(model, transition, walkers, "noise")
    for position in positions(model, transition, state, steps):
        if position.step in keep:
            kept.append((position.step, convert(position.mean), convert(position.noisy)))
        if scalar is not None:
            emitted = position.noisy if m.default_emit == "noisy" else position.mean
            traces.append(scalar(convert(emitted)))
        advance(walkers)
    return Samples(
        tuple(step for step, _, _ in kept),
        np.stack([mean for _, mean, _ in kept]),
        np.stack([noisy for _, _, noisy in kept]),
        np.stack(traces) if traces else np.empty((0, walkers, 0)),
    )
