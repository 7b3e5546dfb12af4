"""The figures of one set of samples. Real rows and baselines get the same figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from localmoments.arrays import Doubles, Floats
from trainer.evaluate.classes import entropy, shares
from trainer.evaluate.classifier import Classifier
from trainer.evaluate.comparison import Reference
from trainer.evaluate.estimates import Estimate, Units, combine, deal_groups
from trainer.evaluate.features import Features
from trainer.evaluate.parzen import Parzen, parzen
from trainer.evaluate.rows import Rows

ERRORS = "errors"  # of the figures of a set, by name


@dataclass(frozen=True)
class SampleSet:
    x: Floats  # (m, d), in the units of `Rows`
    chains: Units | None = None  # (m,): the chain of each; None: every row is independent

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class SetFigures:
    figures: dict[str, Any]
    parzen: Parzen | None = None
    classes: Doubles | None = None  # (C,), shares


def subset(x: Floats, count: int) -> Floats:
    """A random choice that repeats."""
    if len(x) <= count:
        return x
    return x[np.sort(np.random.default_rng(0).choice(len(x), count, replace=False))]


def set_figures(
    samples: SampleSet, rows: Rows, reference: Reference | None, features: Features, *, image: bool
) -> SetFigures:
    """Every figure of a set of samples against the test rows."""
    compared: dict[str, Estimate] = {}
    if reference is not None and len(samples) >= reference.size:
        compared = reference.compare(samples.x, samples.chains)
    window = parzen(rows.test.x, rows.validation.x, samples.x, samples.chains) if image else None
    return _figures(samples, window, compared, features)


def real_against_real(
    rows: Rows, reference: Reference, features: Features, *, image: bool
) -> SetFigures:
    """Two random halves of the test rows, in sets of the same size as all others. Neither the model
    nor the classifier was trained on either half."""
    first = reference.draws[0]
    real, half = rows.test.x[first.index], SampleSet(rows.test.x[first.others])
    window = parzen(real, rows.validation.x, half.x) if image else None
    return _figures(half, window, reference.compare_itself(), features)


def _figures(
    samples: SampleSet, window: Parzen | None, compared: dict[str, Estimate], features: Features
) -> SetFigures:
    estimates: dict[str, Estimate] = {}
    if window is not None:
        estimates["log-likelihood"] = window.estimate
    estimates |= compared
    parts = None
    if isinstance(features, Classifier):
        predicted = features.predict(samples.x)
        parts = shares(predicted, features.count)
        estimates["class entropy"] = class_entropy(predicted, features.count, samples.chains)
    figures: dict[str, Any] = {"samples": len(samples)}
    if window is not None:
        figures["bandwidth"] = window.bandwidth
    figures |= {name: found.value for name, found in estimates.items()}
    figures[ERRORS] = {name: found.error for name, found in estimates.items()}
    return SetFigures(figures, window, parts)


def class_entropy(predicted: Units, count: int, chains: Units | None = None) -> Estimate:
    """Of classes (m,), with the error that other chains would make."""
    groups = deal_groups(np.arange(len(predicted)) if chains is None else chains)
    without = [entropy(predicted[groups != g], count) for g in range(int(groups.max()) + 1)
               if (groups != g).any()]  # fmt: skip
    return combine(entropy(predicted, count), np.array(without))
