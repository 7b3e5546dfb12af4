"""Which scale each kernel walks with by default: the one whose samples are nearest to real rows.

Chains of every candidate start from noise. Their samples are compared with validation rows, never
with test rows: images by the kernel distance of features, tables by the sliced Wasserstein
distance. A scale is refused if its chains diverge, lose classes (entropy below 0.9 of the real
rows') or, in tables, leave the places where real rows are (density below 0.8). The largest scale
within 5 % of the lowest distance is taken, because it moves fastest. If every scale is refused, the
lowest distance decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localmoments.arrays import Floats
from localmoments.artefact import Manifest
from localmoments.chain import draw_starts
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.evaluate.chains import Tick, from_start
from trainer.evaluate.classes import entropy
from trainer.evaluate.classifier import Classifier
from trainer.evaluate.distances import density_and_coverage, kernel_distance, sliced_wasserstein
from trainer.evaluate.estimates import Units
from trainer.evaluate.features import Features
from trainer.evaluate.plan import Plan
from trainer.evaluate.rows import Rows

FACTORS = (0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0)
NEAR = 0.05  # of the lowest distance: as good as the best
ENTROPY = 0.9  # of the real rows'
DENSITY = 0.8


@dataclass(frozen=True)
class Verdict:
    """The distance of samples from real rows, lower is better, and whether they are acceptable."""

    distance: float
    accepted: bool = True

    def __str__(self) -> str:
        return f"{self.distance:.4g}" + ("" if self.accepted else " (refused)")


@dataclass(frozen=True)
class Judge:
    """Compares samples with the validation rows."""

    rows: Rows
    features: Features
    is_table: bool

    def __call__(self, samples: Floats, chains: Units | None = None) -> Verdict:
        """Samples (m, d); chains (m,): where each is from."""
        real = self.rows.validation.x
        if self.is_table:
            distance = sliced_wasserstein(samples.astype(np.float64), real.astype(np.float64))
            return Verdict(distance, density_and_coverage(real, samples)[0] >= DENSITY)
        distance = kernel_distance(self.features(real), self.features(samples), chains)
        return Verdict(distance, self._has_all_classes(samples))

    def _has_all_classes(self, samples: Floats) -> bool:
        if not isinstance(self.features, Classifier):
            return True
        predict, count = self.features.predict, self.features.count
        wanted = ENTROPY * entropy(predict(self.rows.validation.x), count)
        return entropy(predict(samples), count) >= wanted


Tried = Mapping[float, Verdict | None]  # None: its chains left all bounds


def calibrated(manifest: Manifest, kernel: str) -> float:
    """The scale before any search, so that a second search tries the same ones."""
    scales = manifest.evaluation.get("scales", {})
    before = scales.get(kernel, {}).get("calibrated") if isinstance(scales, Mapping) else None
    return float(before or manifest.kernels[kernel].scale)


def candidates(manifest: Manifest, kernel: str) -> list[float]:
    """Around the calibrated scale; a gibbs step of a model that knows its noise level stays within
    the levels it was trained for."""
    tried = [factor * calibrated(manifest, kernel) for factor in FACTORS]
    if kernel == "gibbs" and manifest.noise_levels is not None:
        low, high = (level / manifest.sigma for level in manifest.noise_levels)
        low *= 2 ** int(manifest.recipe.get("sampling", {}).get("halvings", 0))
        tried = sorted({min(max(scale, low), high) for scale in tried})
    return tried


def search_scale(model: Model, kernel: str, judge: Judge, plan: Plan, tick: Tick) -> dict[str, Any]:
    """What was tried, its distances, and the choice."""
    tried: dict[float, Verdict | None] = {}

    def attempt(scales: Sequence[float]) -> None:
        for scale in scales:
            tried[scale] = _tried(model, kernel, scale, judge, plan)
            tick(1)

    attempt(candidates(model.manifest, kernel))
    attempt(between(tried))
    before = calibrated(model.manifest, kernel)
    return {
        "calibrated": before,
        "chosen": chosen(tried) or before,
        "tried": {f"{s:.4g}": str(v or "out of bounds") for s, v in sorted(tried.items())},
    }


def between(tried: Tried) -> list[float]:
    """Halfway, in ratio, from the best scale to its neighbours."""
    good = _good(tried)
    if not good:
        return []
    scales = sorted(tried)
    at = scales.index(min(good, key=lambda scale: good[scale]))
    pairs = [(scales[i], scales[i + 1]) for i in (at - 1, at) if 0 <= i < len(scales) - 1]
    return [(a * b) ** 0.5 for a, b in pairs]


def chosen(tried: Tried) -> float | None:
    """The largest of those within a twentieth of the lowest distance."""
    good = _good(tried)
    if not good:
        return None
    best = min(good.values())
    return max(scale for scale, distance in good.items() if distance <= best + NEAR * abs(best))


def _good(tried: Tried) -> dict[float, float]:
    """Distances of the acceptable scales, or of all that stayed in bounds where none is."""
    inside = {scale: verdict for scale, verdict in tried.items() if verdict is not None}
    accepted = {scale: v.distance for scale, v in inside.items() if v.accepted}
    return accepted or {scale: v.distance for scale, v in inside.items()}


def _tried(model: Model, kernel: str, scale: float, judge: Judge, plan: Plan) -> Verdict | None:
    last = plan.search_steps
    keeps = range(last - (plan.search_kept - 1) * plan.thin, last + 1, plan.thin)
    start = draw_starts(model, plan.search_walkers, 1, "noise")
    try:
        drawn = from_start(
            model, kernel, scale, start, judge.rows.units, last, keeps, lambda n: None
        )
    except DivergedError:
        return None
    return judge(drawn.rows(model.manifest.default_emit), drawn.chains)
