"""Figures for data of known law: samples against exact draws, local moments against the truth.

**Exact draws.** Samples are compared with exact draws from the law, and exact draws with each
other. The ratio of the two distances is 1 for samples of the right law, whatever the number of
rows. It grows with the error, and with the number of rows that make a small error visible.

**Local moments.** For noise σDε as the model saw it, D = diag(scale), the law gives E and
Cov[X | X + σDε = x] in closed form.
"""

import numpy as np

from localmoments.arrays import Doubles
from localmoments.columns import Normaliser
from localmoments.model import Model
from trainer.data import GaussianMixture, KnownLaw
from trainer.evaluate.sample_metrics import sliced_wasserstein

REPEATS = 5


def compare_with_law(
    samples: Doubles, law: KnownLaw, units: Normaliser, seed: int = 1_000
) -> dict[str, float]:
    """Compare samples with exact draws.

    Args:
        samples: (n, d), in the user's units.
        units: of the distances. Figures are means over REPEATS pairs of exact sets.
    """
    x = units.to_model(samples).astype(np.float64)
    n = len(x)
    of_samples, of_exact = [], []
    for k in range(REPEATS):
        rng = np.random.default_rng([seed, k])
        a, b = (units.to_model(law.sample(n, rng)).astype(np.float64) for _ in range(2))
        of_samples.append((sliced_wasserstein(x, a, k), *_moment_errors(x, a)))
        of_exact.append((sliced_wasserstein(b, a, k), *_moment_errors(b, a)))
    d, mean, covariance = np.mean(of_samples, axis=0).tolist()
    d0, mean0, covariance0 = np.mean(of_exact, axis=0).tolist()
    return {
        "rows": n,
        "sliced Wasserstein": d,
        "sliced Wasserstein between exact sets": d0,
        "ratio": d / d0,
        "mean error": mean,
        "mean error between exact sets": mean0,
        "covariance error": covariance,
        "covariance error between exact sets": covariance0,
    }


def _moment_errors(x: Doubles, exact: Doubles) -> tuple[float, float]:
    """‖m - m'‖ / √tr C and ‖C - C'‖ / ‖C‖, with C of the exact rows."""
    C, D = (np.atleast_2d(np.cov(part.T)) for part in (exact, x))
    away = float(np.linalg.norm(x.mean(0) - exact.mean(0)) / np.sqrt(np.trace(C)))
    return away, float(np.linalg.norm(D - C) / np.linalg.norm(C))


def moment_errors(model: Model, law: GaussianMixture, x: Doubles) -> dict[str, float]:
    """Median errors of the local mean, relative to the data's spread, and of the first tangent, in
    degrees; x (n, d) in the user's units."""
    m = model.manifest
    noise = m.moments_sigma * m.normaliser.scale
    mean, covariance = law.posterior(x, noise)
    top = np.linalg.eigh(covariance)[1][:, :, -1]  # (n, d)
    local = model.moments(x, rank=1, include=["mean", "tangents"])
    assert local.mean is not None and local.tangents is not None
    spread = np.sqrt(np.trace(np.cov(x.T)))
    errors = np.linalg.norm(local.mean - mean, axis=1) / spread
    cosines = np.abs(np.vecdot(local.tangents[:, 0], top))
    angles = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
    return {"mean error": float(np.median(errors)), "tangent angle": float(np.median(angles))}
