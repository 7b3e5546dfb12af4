"""Figures of a set of samples compared with real rows.

Coverage, the Fréchet distance and the sliced Wasserstein distance depend on how many rows are
compared. With 98 real rows and 10,000 samples every ball holds a sample, and every model has
coverage 1. So a draw takes n real rows and n samples, with the same n for all sets that are to be
compared with each other. n is at most half of the real rows, so that real rows can be compared with
real rows at the same size. A figure is the mean over the draws. Its variance is the sum of

    the delete-a-group jackknife over chains           what another run of the sampler would change
    the delete-a-group jackknife over real rows        what other real rows would change
    the variance between draws / number of draws       what other draws would change

Real rows and baselines get the same figures as samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from localmoments.arrays import Doubles, Floats
from trainer.evaluate.features import Classifier, Features, class_shares, normalised_entropy
from trainer.evaluate.jackknife import (
    Estimate,
    GroupedRows,
    Parts,
    Units,
    combine,
    deal_groups,
    group_rows,
)
from trainer.evaluate.parzen import Parzen, estimate_parzen
from trainer.evaluate.rows import Rows
from trainer.evaluate.sample_metrics import (
    KernelSums,
    ball_radii,
    coverage_parts,
    directions,
    frechet_parts,
    kernel_parts,
    kernel_sums,
    root_mean_square,
    wasserstein_parts,
)

DRAWN_ROWS = 20_000  # over all draws, as far as MOST_DRAWS allows
FEWEST_DRAWS, MOST_DRAWS = 5, 40
FEWEST_ROWS = 4  # below, there is nothing to compare
MOST_PROJECTED = 2_000  # rows of a draw for the sliced Wasserstein distance
ERRORS = "errors"  # the key of a set's standard errors, by figure


@dataclass(frozen=True)
class Draw:
    """Real rows of one draw, and everything that can be computed before there are samples."""

    index: Units  # (n,)
    others: Units  # (n,), real rows that are not in the draw
    radii: Floats  # (n,)
    sums: KernelSums


@dataclass(frozen=True)
class Reference:
    """Real rows that sets of samples are compared with."""

    features: Features
    unit: float  # root mean square of the real rows' features
    rows: GroupedRows  # features in that unit
    projections: GroupedRows  # the rows themselves on random directions
    draws: tuple[Draw, ...]

    @property
    def size(self) -> int:
        """Rows of each set in a draw."""
        return len(self.draws[0].index)

    @property
    def description(self) -> str:
        return (
            f"{len(self.draws)} random draws of {self.size:,} test rows and the same number of "
            "samples"
        )

    def compare(self, samples: Floats, chains: Units | None = None) -> dict[str, Estimate]:
        """Figures of samples (m, d) with m at least `size`; chains (m,): the chain of each."""
        rng = np.random.default_rng(1)
        picks = [np.sort(rng.choice(len(samples), self.size, replace=False)) for _ in self.draws]
        x = group_rows(np.asarray(self.features(samples) / self.unit, np.float32), chains)
        return self._compare(x, group_rows(_project(samples), chains), picks)

    def compare_itself(self) -> dict[str, Estimate]:
        """Compare real rows with real rows: the two sides of every draw."""
        return self._compare(self.rows, self.projections, [draw.others for draw in self.draws])

    def _compare(
        self, x: GroupedRows, projections: GroupedRows, picks: Sequence[Units]
    ) -> dict[str, Estimate]:
        by_figure: dict[str, list[Parts]] = {}
        for draw, pick in zip(self.draws, picks, strict=True):
            real, samples = self.rows.take(draw.index), x.take(pick)
            density, coverage = coverage_parts(real, samples, draw.radii)
            kernel = kernel_parts(
                draw.sums, kernel_sums(samples, samples), kernel_sums(real, samples)
            )
            few = np.random.default_rng(2).permutation(self.size)[:MOST_PROJECTED]
            figures = {
                "density": density,
                "coverage": coverage,
                "kernel distance": kernel,
                "Fréchet distance": frechet_parts(real, samples),
                "sliced Wasserstein": wasserstein_parts(
                    self.projections.take(draw.index[few]), projections.take(pick[few])
                ),
            }
            for name, parts in figures.items():
                by_figure.setdefault(name, []).append(parts)
        return {name: _average_draws(parts) for name, parts in by_figure.items()}


def _average_draws(draws: Sequence[Parts]) -> Estimate:
    values = np.array([parts.value for parts in draws])
    return combine(
        float(values.mean()),
        np.mean([parts.without_samples for parts in draws], axis=0),
        np.mean([parts.without_real for parts in draws], axis=0),
        more=[float(values.var(ddof=1)) / len(values)],
    )


def _project(x: Floats) -> Floats:
    """(n, d) -> (n, PROJECTIONS)"""
    return np.asarray(x @ directions(x.shape[1]).astype(np.float32), np.float32)


def make_reference(real: Floats, features: Features, most: int) -> Reference | None:
    """Prepare real rows (N, d), at most `most` in a draw; None if there are too few."""
    n = min(len(real) // 2, most)
    if n < FEWEST_ROWS:
        return None
    f = features(real)
    unit = root_mean_square(f)
    rows = group_rows(np.asarray(f / unit, np.float32))
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(int(np.clip(DRAWN_ROWS // n, FEWEST_DRAWS, MOST_DRAWS))):
        order = rng.permutation(len(real))
        index, others = np.sort(order[:n]), np.sort(order[n : 2 * n])
        some = rows.take(index)
        draws.append(Draw(index, others, ball_radii(some.x), kernel_sums(some, some)))
    return Reference(features, unit, rows, group_rows(_project(real)), tuple(draws))


@dataclass(frozen=True)
class SampleSet:
    """Samples, or other rows that are compared with the test rows."""

    x: Floats  # (m, d), in the units of `Rows`
    chains: Units | None = None  # (m,), the chain of each; None if every row is independent

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class SetFigures:
    """The figures of a set, and what its plots are drawn from."""

    figures: dict[str, Any]
    parzen: Parzen | None = None
    classes: Doubles | None = None  # (C,), shares


def pick_rows(x: Floats, count: int) -> Floats:
    """At most `count` rows of x (n, d), chosen at random from a fixed seed, in order."""
    if len(x) <= count:
        return x
    return x[np.sort(np.random.default_rng(0).choice(len(x), count, replace=False))]


def compare_set(
    samples: SampleSet, rows: Rows, reference: Reference | None, features: Features, *, image: bool
) -> SetFigures:
    """Every figure of a set of samples against the test rows."""
    estimates: dict[str, Estimate] = {}
    if reference is not None and len(samples) >= reference.size:
        estimates = reference.compare(samples.x, samples.chains)
    density = (
        estimate_parzen(rows.test.x, rows.validation.x, samples.x, samples.chains)
        if image
        else None
    )
    return _collect_figures(samples, density, estimates, features)


def compare_real_rows(
    rows: Rows, reference: Reference, features: Features, *, image: bool
) -> SetFigures:
    """Compare two random halves of the test rows, in sets of the same size as all others.

    Neither the model nor the classifier was trained on either half.
    """
    first = reference.draws[0]
    real, half = rows.test.x[first.index], SampleSet(rows.test.x[first.others])
    density = estimate_parzen(real, rows.validation.x, half.x) if image else None
    return _collect_figures(half, density, reference.compare_itself(), features)


def _collect_figures(
    samples: SampleSet, density: Parzen | None, compared: dict[str, Estimate], features: Features
) -> SetFigures:
    estimates: dict[str, Estimate] = {}
    if density is not None:
        estimates["log-likelihood"] = density.estimate
    estimates |= compared
    shares = None
    if isinstance(features, Classifier):
        predicted = features.predict(samples.x)
        shares = class_shares(predicted, features.count)
        estimates["class entropy"] = class_entropy(predicted, features.count, samples.chains)
    figures: dict[str, Any] = {"samples": len(samples)}
    if density is not None:
        figures["bandwidth"] = density.bandwidth
    figures |= {name: estimate.value for name, estimate in estimates.items()}
    figures[ERRORS] = {name: estimate.error for name, estimate in estimates.items()}
    return SetFigures(figures, density, shares)


def class_entropy(predicted: Units, count: int, chains: Units | None = None) -> Estimate:
    """Normalised entropy of predicted classes (m,), with the error over chains (m,)."""
    groups = deal_groups(np.arange(len(predicted)) if chains is None else chains)
    without = [
        normalised_entropy(predicted[groups != g], count)
        for g in range(int(groups.max()) + 1)
        if (groups != g).any()
    ]
    return combine(normalised_entropy(predicted, count), np.array(without))
