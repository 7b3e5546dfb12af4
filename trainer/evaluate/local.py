"""Figures of single points: how well rows are reconstructed, and their local moments."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
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
from localmoments.noise import normals
from localmoments.spectrum import full_spectrum
from trainer.data import GaussianMixture


def reconstruction(model: Model, x: Doubles) -> dict[str, float]:
    """Errors of r(x) and r(x + σε) at the level for clean rows, in standard deviations."""
    z, sigma = model.manifest.normaliser.to_model(x), model.manifest.moments_sigma
    noisy = z + np.float32(sigma) * normals(0, 0, z.shape)
    level = model.noise_level(len(z), sigma)
    r = model.run("reconstruct", x=z, **level)["mean"]
    denoised = model.run("reconstruct", x=noisy, **level)["mean"]
    spread = float(z.std(axis=0).mean()) or 1.0
    return {
        "reconstruction": _rms(r - z) / spread,
        "denoising": _rms(denoised - z) / spread,
        "noise": _rms(noisy - z) / spread,
    }


def _rms(x: Floats) -> float:
    return float(np.sqrt(np.square(x, dtype=np.float64).mean()))


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


def against_truth(model: Model, truth: GaussianMixture, x: Doubles) -> dict[str, float]:
    """Median error of the local mean, relative to the data's spread, and of the top tangent.

    The truth is E and Cov[X | X + σDε = x], with the noise as the model saw it.
    """
    m = model.manifest
    noise = m.moments_sigma * m.normaliser.scale
    mean, covariance = truth.posterior(x, noise)
    top = np.linalg.eigh(covariance)[1][:, :, -1]  # (n, d)
    local = moments_at(model, x, 1, "asymptotic")
    spread = np.sqrt(np.trace(np.cov(x.T)))
    errors = [np.linalg.norm(a.mean - b) / spread for a, b in zip(local, mean, strict=True)]
    cosines = [abs(float(a.tangents[0] @ t)) for a, t in zip(local, top, strict=True)]
    angles = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
    return {"mean error": float(np.median(errors)), "tangent angle": float(np.median(angles))}
