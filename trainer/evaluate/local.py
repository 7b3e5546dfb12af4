"""Figures of single points: how well rows are reconstructed, and their local moments."""

import numpy as np
from numpy.typing import NDArray

from service.core.moments import Estimator, Moments, in_user_units, local_moments, spectrum_of
from service.core.noise import normals
from service.core.normaliser import Normaliser
from service.core.types import Doubles, Floats
from service.engine.model import Model
from trainer.data import GaussianMixture


def reconstruction(model: Model, x: Doubles) -> dict[str, float]:
    """Errors of r(x) and r(x + σε), in the model's units."""
    z = model.manifest.normaliser.to_model(x)
    noisy = z + model.manifest.sigma * normals(0, 0, z.shape)
    level = model.noise_level(len(z))
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


def moments_at(model: Model, x: Doubles, rank: int, estimator: Estimator) -> list[Moments]:
    """Local moments at each row of x, in the user's units."""
    m = model.manifest
    z = m.normaliser.to_model(x)
    return [_moments_at_one(model, m.normaliser, row[None], rank, estimator) for row in z]


def _moments_at_one(
    model: Model, normaliser: Normaliser, z: Floats, rank: int, estimator: Estimator
) -> Moments:
    """z (1, d): the whole J for small d, else a block Krylov method on products."""

    def products(v: NDArray[np.floating]) -> Doubles:
        out = model.run("moments", x=z, v=v[None].astype(np.float32), **model.noise_level(1))
        return np.asarray(out["products"][0], np.float64)  # (k, d)

    r = model.run("reconstruct", x=z, **model.noise_level(1))["mean"][0]
    spectrum = spectrum_of(products, z.shape[1], rank, r.astype(np.float64) - z[0])
    local = local_moments(z[0], r, spectrum, model.manifest.alpha, estimator)
    user = in_user_units(local, normaliser)
    return Moments(user.mean, user.eigenvalues[:rank], user.tangents[:rank], user.score)


def against_truth(model: Model, truth: GaussianMixture, x: Doubles) -> dict[str, float]:
    """Median error of the local mean, relative to the data's spread, and of the top tangent.

    The truth is E and Cov[X | X + σDε = x], with the noise as the model saw it.
    """
    m = model.manifest
    noise = m.sigma * m.normaliser.scale
    mean, covariance = truth.posterior(x, noise)
    top = np.linalg.eigh(covariance)[1][:, :, -1]  # (n, d)
    local = moments_at(model, x, 1, "asymptotic")
    spread = np.sqrt(np.trace(np.cov(x.T)))
    errors = [np.linalg.norm(a.mean - b) / spread for a, b in zip(local, mean, strict=True)]
    cosines = [abs(float(a.tangents[0] @ t)) for a, t in zip(local, top, strict=True)]
    angles = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
    return {"mean error": float(np.median(errors)), "tangent angle": float(np.median(angles))}
