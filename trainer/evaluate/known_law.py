"""Figures for data of known law: samples against exact draws, local moments against the truth.

**Exact draws.** Samples are compared with exact draws from the law, and exact draws with each
other. The ratio of the two distances is 1 for samples of the right law, whatever the number of
rows. It grows with the error, and with the number of rows that make a small error visible.

**Local moments.** For noise σDε as the model saw it, D = diag(scale), the law gives E and
Cov[X | X + σDε = x] in closed form.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.columns import Normaliser
from localmoments.estimators import (
    Estimator,
    Moments,
    Spread,
    in_user_units,
    local_moments,
    scaled_moments,
    spectrum_of,
)
from localmoments.model import Model
from localmoments.spectrum import full_spectrum
from trainer.data import GaussianMixture, KnownLaw
from trainer.evaluate.distances import sliced_wasserstein

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
    local = moments_at(model, x, 1, "asymptotic")
    spread = np.sqrt(np.trace(np.cov(x.T)))
    errors = [np.linalg.norm(a.mean - b) / spread for a, b in zip(local, mean, strict=True)]
    cosines = [abs(float(a.tangents[0] @ t)) for a, t in zip(local, top, strict=True)]
    angles = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
    return {"mean error": float(np.median(errors)), "tangent angle": float(np.median(angles))}


def moments_at(
    model: Model, x: Doubles, rank: int, estimator: Estimator, sigma: float | None = None
) -> list[Moments]:
    """Local moments at each row of x, in the user's units; at the level for clean rows if none is
    named."""
    z = model.manifest.normaliser.to_model(x)
    level = model.manifest.moments_sigma if sigma is None else sigma
    return [_moments_at_one(model, row[None], rank, estimator, level) for row in z]


def _moments_at_one(
    model: Model, z: Floats, rank: int, estimator: Estimator, sigma: float
) -> Moments:
    """z (1, d): the whole J for small d, else a block Krylov method on products."""
    normaliser, alpha, d = model.manifest.normaliser, model.alpha(sigma), z.shape[1]
    level = model.noise_level(1, sigma)

    def products(v: NDArray[np.floating]) -> Doubles:
        out = model.run("moments", x=z, v=v[None].astype(np.float32), **level)
        return np.asarray(out["products"][0], np.float64)  # (k, d)

    r = model.run("reconstruct", x=z, **level)["mean"][0]
    toward = r.astype(np.float64) - z[0]
    if normaliser.is_uniform or estimator == "inverted":
        # Of columns with different scales, the inverse in the user's units needs all of A.
        few = normaliser.is_uniform
        spectrum = spectrum_of(products, d, rank, toward) if few else full_spectrum(
            products(np.eye(d))
        )  # fmt: skip
        spread = Spread(model.start_points()) if estimator == "inverted" else None
        local = local_moments(z[0], r, spectrum, alpha, estimator, spread)
        user = in_user_units(local, normaliser)
    else:
        D = normaliser.scale
        spectrum = spectrum_of(products, d, rank, toward * D, D)
        user = scaled_moments(z[0], r, spectrum, alpha, normaliser)
    return replace(user, eigenvalues=user.eigenvalues[:rank], tangents=user.tangents[:rank])
