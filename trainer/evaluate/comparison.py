"""Samples against real rows: sets of equal size, drawn at random several times.

Coverage, the Fréchet distance and the sliced Wasserstein distance depend on how many rows are
compared. With 98 real rows and 10,000 samples every ball holds a sample and every model has
coverage 1. So a draw takes n real rows and n samples, n the same for all sets that are to be
compared with each other, and at most half of the real rows, so that real rows can be compared with
real rows at the same size. A figure is the mean over the draws. Its variance is the sum of

    the delete-a-group jackknife over chains           what another run of the sampler would change
    the delete-a-group jackknife over real rows        what other real rows would change
    the variance between draws / number of draws       what other draws would change
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localmoments.arrays import Floats
from trainer.evaluate.distances import (
    Grouped,
    KernelSums,
    Parts,
    ball_radii,
    coverage_parts,
    directions,
    frechet_parts,
    kernel_parts,
    kernel_sums,
    root_mean_square,
    wasserstein_parts,
)
from trainer.evaluate.estimates import Estimate, Units, combine, deal_groups
from trainer.evaluate.features import Features

DRAWN_ROWS = 20_000  # over all draws, as far as MOST_DRAWS allows
FEWEST_DRAWS, MOST_DRAWS = 5, 40
FEWEST_ROWS = 4  # below, there is nothing to compare
MOST_PROJECTED = 2_000  # rows of a draw for the sliced Wasserstein distance

Index = Units


def group(x: Floats, units: Units | None = None) -> Grouped:
    """Rows with their chains; without `units` every row is a chain of its own."""
    units = np.arange(len(x)) if units is None else units
    groups = deal_groups(units)
    return Grouped(x, units, groups, int(groups.max()) + 1)


@dataclass(frozen=True)
class Draw:
    """Real rows of one draw, and all that can be computed before there are samples."""

    index: Index  # (n,)
    others: Index  # (n,): real rows that are not in the draw
    radii: Floats  # (n,)
    sums: KernelSums


@dataclass(frozen=True)
class Reference:
    """Real rows that sets of samples are compared with."""

    features: Features
    unit: float  # root mean square of the real rows' features
    rows: Grouped  # features in that unit
    projected: Grouped  # the rows themselves on random directions
    draws: tuple[Draw, ...]

    @property
    def size(self) -> int:
        """Rows of each set in a draw."""
        return len(self.draws[0].index)

    @property
    def words(self) -> str:
        return f"{len(self.draws)} random draws of {self.size:,} test rows and as many samples"

    def compare(self, samples: Floats, chains: Units | None = None) -> dict[str, Estimate]:
        """Figures of samples (m, d), m at least `size`; chains (m,): where each is from."""
        rng = np.random.default_rng(1)
        picks = [np.sort(rng.choice(len(samples), self.size, replace=False)) for _ in self.draws]
        x = group(np.asarray(self.features(samples) / self.unit, np.float32), chains)
        return self._compare(x, group(_projected(samples), chains), picks)

    def compare_itself(self) -> dict[str, Estimate]:
        """Real rows against real rows: the two sides of every draw."""
        return self._compare(self.rows, self.projected, [draw.others for draw in self.draws])

    def _compare(
        self, x: Grouped, projected: Grouped, picks: Sequence[Index]
    ) -> dict[str, Estimate]:
        found: dict[str, list[Parts]] = {}
        for draw, pick in zip(self.draws, picks, strict=True):
            real, ours = self.rows.take(draw.index), x.take(pick)
            density, coverage = coverage_parts(real, ours, draw.radii)
            kernel = kernel_parts(draw.sums, kernel_sums(ours, ours), kernel_sums(real, ours))
            few = np.random.default_rng(2).permutation(self.size)[:MOST_PROJECTED]
            figures = {
                "density": density,
                "coverage": coverage,
                "kernel distance": kernel,
                "Fréchet distance": frechet_parts(real, ours),
                "sliced Wasserstein": wasserstein_parts(
                    self.projected.take(draw.index[few]), projected.take(pick[few])
                ),
            }
            for name, parts in figures.items():
                found.setdefault(name, []).append(parts)
        return {name: _estimate(parts) for name, parts in found.items()}


def _estimate(draws: Sequence[Parts]) -> Estimate:
    values = np.array([parts.value for parts in draws])
    return combine(
        float(values.mean()),
        np.mean([parts.without_samples for parts in draws], axis=0),
        np.mean([parts.without_real for parts in draws], axis=0),
        more=[float(values.var(ddof=1)) / len(values)],
    )


def _projected(x: Floats) -> Floats:
    return np.asarray(x @ directions(x.shape[1]).astype(np.float32), np.float32)


def make_reference(real: Floats, features: Features, most: int) -> Reference | None:
    """Real rows (N, d) to compare samples with, at most `most` in a draw; None for too few."""
    n = min(len(real) // 2, most)
    if n < FEWEST_ROWS:
        return None
    f = features(real)
    unit = root_mean_square(f)
    rows = group(np.asarray(f / unit, np.float32))
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(int(np.clip(DRAWN_ROWS // n, FEWEST_DRAWS, MOST_DRAWS))):
        order = rng.permutation(len(real))
        index, others = np.sort(order[:n]), np.sort(order[n : 2 * n])
        some = rows.take(index)
        draws.append(Draw(index, others, ball_radii(some.x), kernel_sums(some, some)))
    return Reference(features, unit, rows, group(_projected(real)), tuple(draws))
