"""The figures of one set of samples; real rows and baselines get the same ones, to compare with."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.core.types import Doubles, Floats
from trainer.evaluate.classes import entropy, shares
from trainer.evaluate.classifier import Classifier
from trainer.evaluate.coverage import density_and_coverage
from trainer.evaluate.features import Features
from trainer.evaluate.kid import kernel_distance
from trainer.evaluate.parzen import Parzen, parzen
from trainer.evaluate.rows import Rows
from trainer.evaluate.wasserstein import sliced_wasserstein

MOST_DISTANCE = 2_000


@dataclass(frozen=True)
class SetFigures:
    figures: dict[str, Any]
    parzen: Parzen | None = None
    classes: Doubles | None = None  # (C,), shares


def subset(x: Floats, count: int) -> Floats:
    """A random choice that repeats: samples of one chain lie side by side."""
    if len(x) <= count:
        return x
    return x[np.sort(np.random.default_rng(0).choice(len(x), count, replace=False))]


def set_figures(
    samples: Floats, rows: Rows, features: Features, most: int, *, image: bool
) -> SetFigures:
    """Samples (m, d), in the units of `rows`; most: how many features are compared."""
    figures: dict[str, Any] = {"samples": len(samples)}
    density = None
    if image:
        density = parzen(rows.test.x, rows.validation.x, samples)
        figures["log-likelihood"] = density.mean
        figures["standard error"] = density.error
        figures["bandwidth"] = density.bandwidth
    real, ours = features(subset(rows.test.x, most)), features(subset(samples, most))
    if min(len(real), len(ours)) > 2:
        figures["density"], figures["coverage"] = density_and_coverage(real, ours)
        figures["kernel distance"] = kernel_distance(real, ours)
    figures["sliced Wasserstein"] = sliced_wasserstein(
        subset(samples, MOST_DISTANCE).astype(np.float64),
        subset(rows.test.x, MOST_DISTANCE).astype(np.float64),
    )
    if not isinstance(features, Classifier):
        return SetFigures(figures, density)
    predicted = features.predict(samples)
    figures["class entropy"] = entropy(predicted, features.count)
    return SetFigures(figures, density, shares(predicted, features.count))
