"""A baseline that generates nothing: the centres of k-means on the training rows, as samples."""

import numpy as np

from localmoments.arrays import Floats
from trainer.evaluate.nearest import squared_distances

ROUNDS = 3
ROWS_A_CENTRE = 5


def k_means(rows: Floats, most: int, rounds: int = ROUNDS, seed: int = 0) -> Floats:
    """Lloyd's rounds from random rows: at most `most` centres (k, d), each of a few rows.

    A library's threads would add up in another order each time; these figures have to repeat.
    """
    k = min(most, max(1, len(rows) // ROWS_A_CENTRE))
    centres = rows[np.random.default_rng(seed).choice(len(rows), k, replace=False)].copy()
    for _ in range(rounds):
        nearest = np.concatenate([d.argmin(axis=1) for _, d in squared_distances(rows, centres)])
        order = np.argsort(nearest, kind="stable")
        taken, first = np.unique(nearest[order], return_index=True)
        sums = np.add.reduceat(rows[order], first, axis=0)
        counts = np.diff(first, append=len(rows))
        centres[taken] = sums / counts[:, None]  # a centre without rows stays where it is
    return centres
