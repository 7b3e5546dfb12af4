"""How good a model is, judged on rows it never saw, through the service's own engine.

| figure              | what it says                                                            |
|---------------------|-------------------------------------------------------------------------|
| reconstruction      | root mean square of r(x) - x, in standard deviations of the data        |
| denoising           | the same for r(x + σε), beside that of x + σε itself                    |
| sliced Wasserstein  | samples against held-out rows, beside training rows against held-out    |
| moments             | for data of known law: local mean and top tangent against the truth     |
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.errors import DivergedError
from service.core.moments import Estimator, Moments, in_user_units, local_moments, spectrum_of
from service.core.noise import normals
from service.core.normaliser import Normaliser
from service.core.types import Doubles, Floats
from service.engine.chain import default_walk, first_state, positions
from service.engine.model import Model
from trainer.data import Dataset, GaussianMixture, Split
from trainer.errors import DataError

PROJECTIONS = 200
STEPS = 50
MOST_ROWS = 2_000


def open_model(folder: Path) -> Model:
    """An artefact, verified and run by the engine that serves it."""
    return Model.open(folder)


@dataclass(frozen=True)
class Held:
    """Rows to judge by and rows to compare with, in the user's units."""

    test: Doubles  # (n, d)
    train: Doubles  # (m, d)


def held_rows(dataset: Dataset, split: Split, most: int = MOST_ROWS) -> Held:
    """Held-out rows, and as many training rows spread over the data."""
    every = max(1, len(split.train) // most)
    return Held(
        dataset.source.take(split.validation[:most]).astype(np.float64),
        dataset.source.take(split.train[::every][:most]).astype(np.float64),
    )


def evaluate(model: Model, dataset: Dataset, split: Split) -> dict[str, Any]:
    """Every figure that this data allows, as plain numbers for the manifest."""
    if dataset.dims != model.manifest.input_dims:
        raise DataError(f"{dataset.name} has {dataset.dims} columns, but {model.manifest.reference}"
                        f" was made for {model.manifest.input_dims}.")  # fmt: skip
    held = held_rows(dataset, split)
    figures: dict[str, Any] = {"rows": len(held.test), **reconstruction(model, held.test)}
    figures["sliced Wasserstein"] = {"training rows": _distance(model, held.train, held.test)}
    for kernel in model.manifest.kernels:
        figures["sliced Wasserstein"][kernel] = _sampled(model, kernel, held.test)
    if isinstance(dataset.truth, GaussianMixture):
        figures["moments"] = against_truth(model, dataset.truth, held.test[:100])
    return figures


def _sampled(model: Model, kernel: str, test: Doubles) -> float | str:
    """How far the kernel's samples are from the data; in words where they have no distance."""
    try:
        return _distance(model, draw(model, kernel, len(test)), test)
    except DivergedError:
        return "its chains leave all bounds"


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


def draw(model: Model, kernel: str, count: int, seed: int = 1) -> Doubles:
    """What `count` walkers emit after STEPS steps from the start points; (count, d)."""
    starts = model.start_points()
    pick = np.random.default_rng(seed).integers(len(starts), size=count)
    walk = default_walk(model, seed, kernel)
    *_, last = positions(model, walk, first_state(model, kernel, starts[pick]), STEPS)
    m = model.manifest
    return m.normaliser.to_user(last.noisy if m.default_emit == "noisy" else last.mean)


def _distance(model: Model, a: Doubles, b: Doubles) -> float:
    scale = model.manifest.normaliser.scale
    return sliced_wasserstein(a / scale, b / scale)


def sliced_wasserstein(a: Doubles, b: Doubles, seed: int = 0) -> float:
    """Mean over random directions of the distance between sorted projections (W₁)."""
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((a.shape[1], PROJECTIONS))
    v /= np.linalg.norm(v, axis=0)
    quantiles = (np.arange(n := max(len(a), len(b))) + 0.5) / n
    qa, qb = (np.sort(x @ v, axis=0)[(quantiles * len(x)).astype(int)] for x in (a, b))  # (n, P)
    return float(np.abs(qa - qb).mean())


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
    spectrum = spectrum_of(products, z.shape[1], rank)
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
