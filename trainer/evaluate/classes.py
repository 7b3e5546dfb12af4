"""What a classifier sees in samples: how often each class, and how often a chain changes it."""

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles

Classes = NDArray[np.int64]


def shares(predicted: Classes, count: int) -> Doubles:
    """The part of each class; (count,)."""
    return np.bincount(predicted.ravel(), minlength=count) / predicted.size


def entropy(predicted: Classes, count: int) -> float:
    """H of the shares as a part of log(count): 1 where all classes are equally frequent."""
    p = shares(predicted, count)
    p = p[p > 0]
    return float(-(p * np.log(p)).sum() / np.log(count)) + 0.0  # no -0


def changes(predicted: Classes) -> float:
    """How often a chain's next step is of another class; predicted (T, W)."""
    return float((predicted[1:] != predicted[:-1]).mean())
