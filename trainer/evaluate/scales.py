"""Search for each kernel's default scale: the one whose samples are nearest to real rows.

Chains of every candidate start from noise. Their samples are compared with validation rows, never
with test rows: images by the kernel distance of features, tables by the sliced Wasserstein
distance. A scale is rejected if its chains diverge, lose classes (entropy below 0.9 of the real
rows') or, in tables, leave the regions where real rows are (density below 0.8). Of the scales
within 5 % of the lowest distance the largest is chosen, because it moves fastest. If every scale is
rejected, the lowest distance decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localmoments.arrays import Floats
from localmoments.artefact import Manifest
from localmoments.chain_state import Transition
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.evaluate.chains import Budget, draw_chains
from trainer.evaluate.context import Context
from trainer.evaluate.features import Classifier, Features, normalised_entropy
from trainer.evaluate.jackknife import Units
from trainer.evaluate.rows import Rows
from trainer.evaluate.sample_metrics import (
    density_and_coverage,
    kernel_distance,
    sliced_wasserstein,
)
from trainer.progress import Advance, track

FACTORS = (0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0)
NEAR = 0.05  # of the lowest distance: as good as the best
LEAST_ENTROPY = 0.9  # of the real rows' entropy
LEAST_DENSITY = 0.8


@dataclass(frozen=True)
class Trial:
    """The distance of a scale's samples from real rows, and whether they are acceptable."""

    distance: float
    is_accepted: bool = True

    def __str__(self) -> str:
        return f"{self.distance:.4g}" + ("" if self.is_accepted else " (rejected)")


@dataclass(frozen=True)
class Criterion:
    """Compares samples with the validation rows."""

    rows: Rows
    features: Features
    is_table: bool

    def __call__(self, samples: Floats, chains: Units | None = None) -> Trial:
        """Samples (m, d); chains (m,): the chain of each."""
        real = self.rows.validation.x
        if self.is_table:
            distance = sliced_wasserstein(samples.astype(np.float64), real.astype(np.float64))
            return Trial(distance, density_and_coverage(real, samples)[0] >= LEAST_DENSITY)
        distance = kernel_distance(self.features(real), self.features(samples), chains)
        return Trial(distance, self._has_all_classes(samples))

    def _has_all_classes(self, samples: Floats) -> bool:
        if not isinstance(self.features, Classifier):
            return True
        predict, count = self.features.predict, self.features.count
        least = LEAST_ENTROPY * normalised_entropy(predict(self.rows.validation.x), count)
        return normalised_entropy(predict(samples), count) >= least


Trials = Mapping[float, Trial | None]  # by scale; None if its chains diverged


def search_scales(context: Context) -> dict[str, Any]:
    """Search the scale of every kernel for which the recipe gives none; figures by kernel."""
    m = context.model.manifest
    given = m.recipe.get("sampling", {}).get("scales", {})
    names = [name for name in m.kernels if name not in given]
    criterion = Criterion(context.rows, context.features, is_table=not context.is_image)
    with track(context.stream, "scales", len(names) * (len(FACTORS) + 2)) as advance:
        return {name: search_scale(context.model, name, criterion, context.budget, advance)
                for name in names}  # fmt: skip


def calibrated_scale(manifest: Manifest, kernel: str) -> float:
    """The scale that `fit` set, before any search: a second search tries the same scales."""
    scales = manifest.evaluation.get("scales", {})
    before = scales.get(kernel, {}).get("calibrated") if isinstance(scales, Mapping) else None
    return float(before or manifest.kernels[kernel].scale)


def candidate_scales(manifest: Manifest, kernel: str) -> list[float]:
    """Scales around the calibrated one.

    A gibbs step of a conditioned model stays within the trained levels.
    """
    scales = [factor * calibrated_scale(manifest, kernel) for factor in FACTORS]
    if kernel == "gibbs" and manifest.noise_levels is not None:
        low, high = (level / manifest.sigma for level in manifest.noise_levels)
        # Each halving divides the level once more within the step.
        low *= 2 ** int(manifest.recipe.get("sampling", {}).get("halvings", 0))
        scales = sorted({min(max(scale, low), high) for scale in scales})
    return scales


def search_scale(
    model: Model, kernel: str, criterion: Criterion, budget: Budget, advance: Advance
) -> dict[str, Any]:
    """Try scales and choose one; `advance` is called after each trial."""
    trials: dict[float, Trial | None] = {}

    def attempt(scales: Sequence[float]) -> None:
        for scale in scales:
            trials[scale] = _try_scale(model, kernel, scale, criterion, budget)
            advance(1)

    attempt(candidate_scales(model.manifest, kernel))
    attempt(scales_between(trials))
    before = calibrated_scale(model.manifest, kernel)
    return {
        "calibrated": before,
        "chosen": choose_scale(trials) or before,
        "tried": {f"{s:.4g}": str(v or "diverged") for s, v in sorted(trials.items())},
    }


def scales_between(trials: Trials) -> list[float]:
    """Geometric means of the best scale and its neighbours, for the second round."""
    distances = _usable_distances(trials)
    if not distances:
        return []
    scales = sorted(trials)
    at = scales.index(min(distances, key=lambda scale: distances[scale]))
    pairs = [(scales[i], scales[i + 1]) for i in (at - 1, at) if 0 <= i < len(scales) - 1]
    return [(a * b) ** 0.5 for a, b in pairs]


def choose_scale(trials: Trials) -> float | None:
    """The largest scale within 5 % of the lowest distance; None if all chains diverged."""
    distances = _usable_distances(trials)
    if not distances:
        return None
    best = min(distances.values())  # may be a little below 0
    return max(scale for scale, d in distances.items() if d <= best + NEAR * abs(best))


def _usable_distances(trials: Trials) -> dict[float, float]:
    """Distances of the accepted scales, or of all that did not diverge if none is accepted."""
    stable = {scale: trial for scale, trial in trials.items() if trial is not None}
    accepted = {scale: trial.distance for scale, trial in stable.items() if trial.is_accepted}
    return accepted or {scale: trial.distance for scale, trial in stable.items()}


def _try_scale(
    model: Model, kernel: str, scale: float, criterion: Criterion, budget: Budget
) -> Trial | None:
    last = budget.search_steps
    keep = range(last - (budget.search_kept - 1) * budget.thin, last + 1, budget.thin)
    transition = Transition(kernel, 1, (scale,))
    try:
        samples = draw_chains(model, transition, budget.search_walkers, last, keep,
                              criterion.rows.units)  # fmt: skip
    except DivergedError:
        return None
    return criterion(samples.rows(model.manifest.default_emit), samples.chains)
