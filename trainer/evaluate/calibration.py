"""Are r and σ²J what they claim to be? Two tests of a model's local moments.

**Restored rows.** For noisy rows x̃ = x + σε a denoising auto-encoder has r(x̃) = E[x | x̃] and
σ²J(x̃) = Cov[x | x̃] (Tweedie), so with e = x - r(x̃) and the eigenpairs (λᵢ, uᵢ) of A = (J + Jᵀ)/2

    E‖e‖² / E[σ² tr J] = 1        E[(uᵢᵀe)² / (σ²λᵢ)] = 1

**Neighbours.** Training rows, weighted by a window around x̃, have a mean m and a covariance C.
Windows are Gaussian, with weights exp(-‖x - x̃‖²/2h²), or the paper's ball ‖x - x̃‖ < δ (eq. ptilde).
Each is compared with the model in two ways:

    narrow   r = m, σ²J = C                          eq. simple-rJ-solutions; exact for h = σ
    wide     r = (I - J₀) m + J₀ x̃, σ²J = αJ₀        eq. rJ-solutions, J₀ = C (αI + C)⁻¹

A narrow window in many columns holds one row or none. A wide one has enough rows, and its formula
is exact if the data within it are Gaussian: with α = σ² for the ball, and with 1/α = 1/σ² - 1/h²
for the Gaussian window, whose weights have already counted the distance from x̃ once.

All points and covariances are in the model's units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.graph_calls import run_calls
from localmoments.model import Model
from localmoments.spectrum import Spectrum, full_spectrum, leading_spectra

RANK = 8  # leading tangents
PROBES = 8  # Hutchinson probes of a trace where d is large
SMALLEST = 1e-3  # eigenvalues below this are rounding error in float32; they are not scored

FEWEST = 10  # effective neighbours that a point needs to be compared
WIDE_ROWS = 100  # neighbours in a wide window
MOST_NEIGHBOURS = 1_000  # rows of a wide window in many columns; the others weigh next to nothing


@dataclass(frozen=True)
class Local:
    """r, tr J and leading eigenpairs of A at n points."""

    x: Doubles  # (n, d)
    r: Doubles  # (n, d)
    traces: Doubles  # (n,)
    eigenvalues: list[Doubles]  # n of (k,)
    tangents: list[Doubles]  # n of (k, d)


def compute_local_moments(
    model: Model, z: Floats, points: int, sigma: float | None = None
) -> Local:
    """r and tr J at points z (n, d), in the model's units.

    Args:
        points: where d is large, eigenpairs are computed at this many points only, the first.
        sigma: the noise level; that of chains by default.
    """
    n, d = z.shape

    def products(x: Floats, v: Doubles) -> tuple[Floats, Floats]:
        out = model.run("moments", x=x, v=v.astype(np.float32), **model.noise_level(len(x), sigma))
        return out["mean"], out["products"]

    r, traces = np.empty((n, d)), np.empty(n)
    found: list[Spectrum] = []
    whole = d <= FULL_JACOBIAN_DIMS
    for part in _slices(n, 64):
        x = z[part]
        if whole:
            v: Doubles = np.tile(np.eye(d), (len(x), 1, 1))
        else:  # Hutchinson: vᵀAv has the mean tr A over random signs v
            rng = np.random.default_rng([0, part.start])
            v = rng.choice(np.array([-1.0, 1.0]), (len(x), PROBES, d))
        r[part], Av = products(x, v)
        traces[part] = (v * Av).sum((1, 2)) / (1 if whole else PROBES)
        if whole:
            found += [full_spectrum(A) for A in Av]
        elif part.start < points:
            some = x[: points - part.start]
            level = model.noise_level(len(some), sigma)
            found += run_calls(model, leading_spectra(some, level, RANK))
    found = [spectrum.truncate(RANK) for spectrum in found]
    return Local(z.astype(np.float64), r, traces, [s.eigenvalues for s in found],
                 [s.vectors for s in found])  # fmt: skip


def _slices(n: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def calibration_figures(local: Local, x: Floats, sigma: float) -> dict[str, float]:
    """The trace ratio and z² along tangents, with standard errors; x (n, d) are the clean rows."""
    e = x - local.r
    squares, traces = np.square(e).sum(1), sigma**2 * local.traces
    ratio = squares.mean() / traces.mean()
    error = (squares - ratio * traces).std() / traces.mean() / np.sqrt(len(x))
    z2 = [
        np.square(U @ e_)[λ > SMALLEST] / (sigma**2 * λ[λ > SMALLEST])
        for λ, U, e_ in zip(local.eigenvalues, local.tangents, e, strict=False)
    ]
    means = np.array([z.mean() for z in z2 if len(z)])
    return {
        "rows": len(x),
        "trace ratio": float(ratio),
        "trace ratio, error": float(error),
        "z² rows": len(means),
        "z²": float(means.mean()),
        "z², error": float(means.std() / np.sqrt(len(means))),
        "z², first tangent": float(np.mean([z[0] for z in z2 if len(z)])),
        "leading eigenvalue": float(np.median([λ[0] for λ in local.eigenvalues])),
    }


@dataclass(frozen=True)
class Window:
    """Training rows around a point with weights that sum to 1."""

    index: NDArray[np.int64]
    weights: Doubles
    width: float  # h or δ
    alpha: float | None = None  # of the wide formula; None for a narrow window

    @property
    def effective(self) -> float:
        """The effective number of rows, 1 / Σw²; 0 for an empty window."""
        return float(1 / np.square(self.weights).sum()) if len(self.weights) else 0.0


class Cloud:
    """Rows (m, d) prepared for distances to one point after the other."""

    def __init__(self, x: NDArray[np.floating]) -> None:
        self.x = x
        self.centre = x.mean(0)
        # Centred, so that the float32 products of `squared` lose the fewest digits.
        self._centred = (x - self.centre).astype(np.float32)
        self._norms = np.square(self._centred).sum(1)

    def squared(self, x0: Doubles) -> Doubles:
        """‖x - x₀‖² of every row; (m,)."""
        at = (x0 - self.centre).astype(np.float32)
        d2: Floats = self._norms - 2 * (self._centred @ at) + at @ at
        return np.maximum(d2, 0).astype(np.float64)

    def total_variance(self) -> float:
        return float(self._norms.mean(dtype=np.float64))


@dataclass(frozen=True)
class Empirical:
    """Mean and covariance of the rows in a window; the covariance by its eigenpairs."""

    mean: Doubles  # (d,)
    eigenvalues: Doubles  # (k,)
    vectors: Doubles  # (k, d)


def neighbour_figures(local: Local, train: Floats, sigma: float, points: int) -> dict[str, Any]:
    """For each window, compare the model's moments with those of the training rows in it.

    Args:
        local: of the noisy points x̃; the first `points` of them are compared.
        train: (m, d).
    """
    count, d = min(points, len(local.tangents)), train.shape[1]
    most = MOST_NEIGHBOURS if d > FULL_JACOBIAN_DIMS else len(train)
    windows: dict[str, Callable[[Doubles], Window]] = {
        "gaussian window": lambda d2: gaussian_window(d2, sigma),
        "wide gaussian window": lambda d2: wide_gaussian_window(d2, sigma, most),
        # A uniform ball of this radius has the variance σ² along every axis.
        "ball": lambda d2: make_ball_window(d2, sigma * np.sqrt(d + 2)),
        "wide ball": lambda d2: wide_ball(d2, sigma),
    }
    compared: dict[str, list[tuple[int, Window, Empirical]]] = {name: [] for name in windows}
    cloud = Cloud(train)
    for i in range(count):
        d2 = cloud.squared(local.x[i])
        for name, make in windows.items():
            window = make(d2)
            if window.effective >= FEWEST:
                compared[name].append((i, window, moments_in(window, train, local.x[i])))
    spread = float(np.sqrt(cloud.total_variance()))
    figures = {name: _compare_window(local, kept, sigma, spread)
               for name, kept in compared.items()}  # fmt: skip
    return {"points": count, "training rows": len(train), **figures}


def gaussian_window(
    d2: Doubles, h: float, most: int | None = None, alpha: float | None = None
) -> Window:
    """Weights exp(-d²/2h²) from squared distances d2 (m,); the `most` largest ones if given."""
    w = np.exp(-(d2 - d2.min()) / (2 * h * h))
    index = np.flatnonzero(w > 1e-6)
    if most is not None and len(index) > most:
        index = index[np.argpartition(-w[index], most)[:most]]
    return Window(index, w[index] / w[index].sum(), h, alpha)


def wide_gaussian_window(d2: Doubles, sigma: float, most: int | None = None) -> Window:
    """The narrowest Gaussian window wider than σ that has WIDE_ROWS effective neighbours;
    α = σ²h²/(h² - σ²)."""

    def effective(h: float) -> float:
        w = np.exp(-(d2 - d2.min()) / (2 * h * h))
        return float(w.sum() ** 2 / np.square(w).sum())

    low = high = 1.05 * sigma
    while effective(high) < WIDE_ROWS and high < 1e3 * sigma:
        low, high = high, 1.5 * high
    while high / low > 1.01:
        middle = np.sqrt(low * high)
        low, high = (low, middle) if effective(middle) >= WIDE_ROWS else (middle, high)
    return gaussian_window(d2, high, most, 1 / (1 / sigma**2 - 1 / high**2))


def make_ball_window(d2: Doubles, delta: float, alpha: float | None = None) -> Window:
    """Equal weights within the radius δ."""
    index = np.flatnonzero(d2 < delta * delta)
    return Window(index, np.full(len(index), 1 / max(1, len(index))), delta, alpha)


def wide_ball(d2: Doubles, sigma: float) -> Window:
    """The ball that holds WIDE_ROWS rows, or of radius 3σ if that is larger; α = σ²."""
    nearest = np.sqrt(np.partition(d2, min(WIDE_ROWS, len(d2) - 1))[min(WIDE_ROWS, len(d2) - 1)])
    return make_ball_window(d2, max(float(nearest), 3 * sigma), sigma**2)


def moments_in(window: Window, train: Floats, x0: Doubles) -> Empirical:
    """m and C of a narrow window; (I - J₀) m + J₀ x₀ and αJ₀ of a wide one."""
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


def _compare_window(
    local: Local, kept: list[tuple[int, Window, Empirical]], sigma: float, spread: float
) -> dict[str, float]:
    """Medians over points. Figures named `other point` compare the same window with the model's
    moments at another point, as a baseline."""
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
        captured.append(_variance_along(near, local.tangents[i][:k]) / best)
        others.append(_variance_along(near, local.tangents[other][:k]) / best)
        traces.append((sigma**2 * local.traces[i], near.eigenvalues.sum()))
    of_model, of_rows = np.sum(traces, axis=0)
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
        "trace ratio": float(of_model / of_rows),
    }


def _variance_along(near: Empirical, tangents: Doubles) -> float:
    """Σ uᵢᵀ C uᵢ over orthonormal tangents (k, d)."""
    return float((near.eigenvalues * np.square(near.vectors @ tangents.T).sum(1)).sum())
