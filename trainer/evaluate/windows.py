"""Local moments of a model against those of the training rows around a point x̃.

Weighted by a window around x̃, training rows have a mean m and a covariance C. Two windows: weights
exp(-‖x - x̃‖²/2h²), and the paper's ball ‖x - x̃‖ < δ (eq. ptilde). Each is compared in two ways:

    narrow   r = m, σ²J = C                          eq. simple-rJ-solutions; exact for h = σ
    wide     r = (I - J₀) m + J₀ x̃, σ²J = αJ₀        eq. rJ-solutions, J₀ = C (αI + C)⁻¹

A narrow window in many columns holds one row or none. A wide one has enough rows, and its formula
is exact where the data within it are Gaussian: for the ball α = σ², for the Gaussian, which has
counted the distance from x̃ once already, 1/α = 1/σ² - 1/h².
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.estimators import FULL_JACOBIAN_DIMS
from trainer.evaluate.calibration import RANK, Local

FEWEST = 10  # effective neighbours of a point that is compared
WANTED = 100  # neighbours in a wide window
MOST_NEIGHBOURS = 1_000  # rows of a wide window in many columns: of the others little is left


@dataclass(frozen=True)
class Window:
    """Training rows around a point, with weights that sum to 1, and the window's width."""

    index: NDArray[np.int64]
    weights: Doubles
    width: float
    alpha: float | None = None  # of the wide formula; None for a narrow window

    @property
    def effective(self) -> float:
        """Rows that count: 1 / Σw², or none."""
        return float(1 / np.square(self.weights).sum()) if len(self.weights) else 0.0


class Cloud:
    """Rows (m, d) whose distances to one point after the other are asked for."""

    def __init__(self, x: NDArray[np.floating]) -> None:
        self.x = x
        self.centre = x.mean(0)
        self._moved = (x - self.centre).astype(np.float32)
        self._norms = np.square(self._moved).sum(1)

    def squared(self, x0: Doubles) -> Doubles:
        """‖x - x₀‖² of every row; both are moved by the mean, where rounding is least; (m,)."""
        at = (x0 - self.centre).astype(np.float32)
        d2: Floats = self._norms - 2 * (self._moved @ at) + at @ at
        return np.maximum(d2, 0).astype(np.float64)

    def total_variance(self) -> float:
        return float(self._norms.mean(dtype=np.float64))


@dataclass(frozen=True)
class Empirical:
    """A mean, and a covariance by its eigenpairs."""

    mean: Doubles  # (d,)
    eigenvalues: Doubles  # (k,)
    vectors: Doubles  # (k, d)


def neighbour_figures(local: Local, train: Floats, sigma: float, points: int) -> dict[str, Any]:
    """For each window: how the model's moments compare with those of the training rows in it."""
    count, d = min(points, len(local.tangents)), train.shape[1]
    most = MOST_NEIGHBOURS if d > FULL_JACOBIAN_DIMS else len(train)
    windows: dict[str, Callable[[Doubles], Window]] = {
        "gaussian window": lambda d2: gaussian_window(d2, sigma),
        "wide gaussian window": lambda d2: wide_gaussian_window(d2, sigma, most),
        # of the radius whose ball has the variance σ² along every axis
        "ball": lambda d2: ball(d2, sigma * np.sqrt(d + 2)),
        "wide ball": lambda d2: wide_ball(d2, sigma),
    }
    found: dict[str, list[tuple[int, Window, Empirical]]] = {name: [] for name in windows}
    cloud = Cloud(train)
    for i in range(count):
        d2 = cloud.squared(local.x[i])
        for name, make in windows.items():
            window = make(d2)
            if window.effective >= FEWEST:
                found[name].append((i, window, moments_in(window, train, local.x[i])))
    spread = float(np.sqrt(cloud.total_variance()))
    figures = {name: _compared(local, kept, sigma, spread) for name, kept in found.items()}
    return {"points": count, "training rows": len(train), **figures}


def gaussian_window(
    d2: Doubles, h: float, most: int | None = None, alpha: float | None = None
) -> Window:
    """exp(-d²/2h²), of squared distances d2 (m,)."""
    w = np.exp(-(d2 - d2.min()) / (2 * h * h))
    index = np.flatnonzero(w > 1e-6)
    if most is not None and len(index) > most:
        index = index[np.argpartition(-w[index], most)[:most]]
    return Window(index, w[index] / w[index].sum(), h, alpha)


def wide_gaussian_window(d2: Doubles, sigma: float, most: int | None = None) -> Window:
    """The narrowest one wider than σ that has WANTED effective neighbours; α = σ²h²/(h² - σ²)."""

    def effective(h: float) -> float:
        w = np.exp(-(d2 - d2.min()) / (2 * h * h))
        return float(w.sum() ** 2 / np.square(w).sum())

    low = high = 1.05 * sigma
    while effective(high) < WANTED and high < 1e3 * sigma:
        low, high = high, 1.5 * high
    while high / low > 1.01:
        middle = np.sqrt(low * high)
        low, high = (low, middle) if effective(middle) >= WANTED else (middle, high)
    return gaussian_window(d2, high, most, 1 / (1 / sigma**2 - 1 / high**2))


def ball(d2: Doubles, delta: float, alpha: float | None = None) -> Window:
    index = np.flatnonzero(d2 < delta * delta)
    return Window(index, np.full(len(index), 1 / max(1, len(index))), delta, alpha)


def wide_ball(d2: Doubles, sigma: float) -> Window:
    """As many rows as are WANTED, at least those within 3σ; α = σ²."""
    nearest = np.sqrt(np.partition(d2, min(WANTED, len(d2) - 1))[min(WANTED, len(d2) - 1)])
    return ball(d2, max(float(nearest), 3 * sigma), sigma**2)


def moments_in(window: Window, train: Floats, x0: Doubles) -> Empirical:
    """m and C, or what the wide formula makes of them: (I - J₀) m + J₀ x₀ and αJ₀."""
    x = train[window.index].astype(np.float64)  # (m, d)
    m = window.weights @ x
    X = np.sqrt(window.weights)[:, None] * (x - m)
    if len(X) < X.shape[1]:  # eigenpairs of X Xᵀ are cheaper than those of C = Xᵀ X
        values, left = np.linalg.eigh(X @ X.T)
        vectors = (left / np.sqrt(np.maximum(values, 1e-300))).T @ X
    else:
        values, columns = np.linalg.eigh(X.T @ X)
        vectors = columns.T
    kept = values > 1e-9 * values[-1]
    c, V = values[kept][::-1], vectors[kept][::-1]
    if window.alpha is None:
        return Empirical(m, c, V)
    j = c / (window.alpha + c)
    return Empirical(m + (j * (V @ (x0 - m))) @ V, window.alpha * j, V)


def _compared(
    local: Local, kept: list[tuple[int, Window, Empirical]], sigma: float, spread: float
) -> dict[str, float]:
    """Medians over points; `other` compares with the model's moments at another point."""
    figures: dict[str, float] = {"points compared": len(kept)}
    if len(kept) < 2:
        return figures
    errors, angles, captured, others, traces = [], [], [], [], []
    for (i, _, near), (other, _, _) in zip(kept, kept[1:] + kept[:1], strict=True):
        k = min(RANK, len(near.eigenvalues), (len(near.mean) + 1) // 2)
        errors.append((np.linalg.norm(local.r[i] - near.mean) / spread,
                       np.linalg.norm(local.r[other] - near.mean) / spread,
                       np.linalg.norm(local.x[i] - near.mean) / spread))  # fmt: skip
        cosine = abs(local.tangents[i][0] @ near.vectors[0])
        angles.append(np.degrees(np.arccos(min(cosine, 1.0))))
        best = near.eigenvalues[:k].sum()
        captured.append(_variance(near, local.tangents[i][:k]) / best)
        others.append(_variance(near, local.tangents[other][:k]) / best)
        traces.append((sigma**2 * local.traces[i], near.eigenvalues.sum()))
    ours, theirs = np.sum(traces, axis=0)
    error, elsewhere, noise = np.median(errors, axis=0)
    return figures | {
        "neighbours": float(np.median([window.effective for _, window, _ in kept])),
        "width": float(np.median([window.width for _, window, _ in kept])),
        "mean error": float(error),
        "mean error, other point": float(elsewhere),
        "mean error, x̃ itself": float(noise),
        "tangent angle": float(np.median(angles)),
        "captured variance": float(np.median(captured)),
        "captured variance, other point": float(np.median(others)),
        "trace ratio": float(ours / theirs),
    }


def _variance(near: Empirical, tangents: Doubles) -> float:
    """Σ uᵢᵀ C uᵢ of orthonormal tangents (k, d)."""
    return float((near.eigenvalues * np.square(near.vectors @ tangents.T).sum(1)).sum())
