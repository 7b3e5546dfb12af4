"""Chains of the evaluation: walked by the engine that serves them, step by step."""

from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.chain import encode_state, make_transition, positions
from localmoments.columns import Normaliser
from localmoments.model import Model
from localmoments.transition import Transition

STEPS = 50
Tick = Callable[[int], None]
Scalar = Callable[[Floats], Doubles]


@dataclass(frozen=True)
class Drawn:
    """What walkers emitted at the steps that were kept, and a trace of every step."""

    steps: tuple[int, ...]
    mean: Floats  # (T, W, d)
    noisy: Floats  # (T, W, d)
    traces: Doubles  # (steps walked, W, f)

    def emitted(self, emission: str) -> Floats:
        return self.noisy if emission == "noisy" else self.mean

    @property
    def chains(self) -> NDArray[np.int64]:
        """The walker of each row of `rows`; (T W,)."""
        return np.tile(np.arange(self.mean.shape[1]), len(self.steps))

    def rows(self, emission: str) -> Floats:
        """All of them; (T W, d)."""
        x = self.emitted(emission)
        return x.reshape(-1, x.shape[2])


def from_start(
    model: Model,
    kernel: str,
    scale: float,
    start: Floats,
    units: Normaliser,
    steps: int,
    keeps: Container[int],
    tick: Tick,
    scalar: Scalar | None = None,
    seed: int = 1,
) -> Drawn:
    """Walk from `start` (W, d), in the model's units; what is emitted is in `units`."""
    m = model.manifest
    same = _same(m.normaliser, units)
    kept: list[tuple[int, Floats, Floats]] = []
    traces: list[Doubles] = []

    def shown(z: Floats) -> Floats:
        return z if same else units.to_model(m.normaliser.to_user(z))

    walk = Transition(kernel, seed, (scale,))
    for at in positions(model, walk, encode_state(model, kernel, start), steps):
        if at.step in keeps:
            kept.append((at.step, shown(at.mean), shown(at.noisy)))
        if scalar is not None:
            traces.append(scalar(shown(at.noisy if m.default_emit == "noisy" else at.mean)))
        tick(len(start))
    return Drawn(
        tuple(step for step, _, _ in kept),
        np.stack([mean for _, mean, _ in kept]),
        np.stack([noisy for _, _, noisy in kept]),
        np.stack(traces) if traces else np.empty((0, len(start), 0)),
    )


def _same(a: Normaliser, b: Normaliser) -> bool:
    return bool(np.array_equal(a.shift, b.shift) and np.array_equal(a.scale, b.scale))


def draw(model: Model, kernel: str, count: int, seed: int = 1) -> Doubles:
    """What `count` walkers emit after STEPS steps from the start points; (count, d)."""
    starts = model.start_points()
    pick = np.random.default_rng(seed).integers(len(starts), size=count)
    walk = make_transition(model, seed=seed, kernel=kernel)
    *_, last = positions(model, walk, encode_state(model, kernel, starts[pick]), STEPS)
    m = model.manifest
    z = last.noisy if m.default_emit == "noisy" else last.mean
    return np.asarray(m.normaliser.to_user(z), np.float64)
