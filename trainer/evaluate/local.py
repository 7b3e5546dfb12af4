"""Figures of single points: how well rows are reconstructed, and their local moments."""

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.model import Model
from localmoments.noise import normals
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


def against_truth(model: Model, truth: GaussianMixture, x: Doubles) -> dict[str, float]:
    """Median error of the local mean, relative to the data's spread, and of the top tangent.

    The truth is E and Cov[X | X + σDε = x], with the noise as the model saw it.
    """
    m = model.manifest
    noise = m.moments_sigma * m.normaliser.scale
    mean, covariance = truth.posterior(x, noise)
    top = np.linalg.eigh(covariance)[1][:, :, -1]  # (n, d)
    local = model.moments(x, rank=1, include=["mean", "tangents"])
    assert local.mean is not None and local.tangents is not None
    spread = np.sqrt(np.trace(np.cov(x.T)))
    errors = np.linalg.norm(local.mean - mean, axis=1) / spread
    cosines = np.abs(np.vecdot(local.tangents[:, 0], top))
    angles = np.degrees(np.arccos(np.clip(cosines, 0, 1)))
    return {"mean error": float(np.median(errors)), "tangent angle": float(np.median(angles))}
