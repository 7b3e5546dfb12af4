"""Trained from data and judged by the truth: what the paper promises, on laws known in full."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from localmoments.estimators import convert_to_data_units, estimate_moments
from localmoments.spectrum import full_spectrum
from trainer.autoencoder import AutoEncoder
from trainer.config import make_recipe
from trainer.data.synthetic import GaussianMixture, Spiral
from trainer.fit import fit
from trainer.prepare import PreparedData, prepare
from trainer.run_folder import new_run

Matrix = NDArray[np.float64]

MIXTURE = GaussianMixture(
    np.array([0.6, 0.4]),
    np.array([[-1.0, 0.0], [1.5, 0.5]]),
    np.array([[[0.5, 0.3], [0.3, 0.3]], [[0.2, -0.15], [-0.15, 0.6]]]),
)


def trained(
    folder: Path, name: str, rows: Matrix, **tables: Any
) -> tuple[AutoEncoder, PreparedData]:
    np.save(folder / f"{name}.npy", rows)
    recipe = make_recipe({"name": name, "data": {"source": str(folder / f"{name}.npy")}, **tables})
    prepared = prepare(recipe)
    return fit(recipe, prepared, new_run(folder, recipe)), prepared


def moments_at(ae: AutoEncoder, z: Matrix) -> tuple[Matrix, Matrix]:
    """r(z) and J(z) of every row, in the model's units."""
    n, d = z.shape
    with torch.no_grad():
        at = ae.linearise(torch.from_numpy(z.astype(np.float32)))
        J = at.jvp(torch.eye(d).expand(n, d, d)).mT
    return at.value.numpy().astype(np.float64), J.numpy().astype(np.float64)


@pytest.fixture(scope="module")
def of_the_mixture(tmp_path_factory: pytest.TempPathFactory) -> tuple[AutoEncoder, PreparedData]:
    return trained(
        tmp_path_factory.mktemp("mixture"),
        "mixture",
        MIXTURE.sample(30_000, np.random.default_rng(0)),
        model={"hidden": [64, 64], "unit": "silu"},
        criterion={"kind": "dae", "sigma": 0.5},
        training={"epochs": 40, "batch": 512, "learning_rate": 5e-3},
    )


def test_a_dae_learns_the_posteriors_mean_and_covariance(
    of_the_mixture: tuple[AutoEncoder, PreparedData],
) -> None:
    """E[X | X + σε = y] = r(y) and Cov = σ² J(y), at noisy points that it never saw.

    Median errors: of the mean 3 % of the data's scale, of the covariance 10 % of its norm.
    """
    ae, prepared = of_the_mixture
    units, σ, rng = prepared.normaliser, 0.5, np.random.default_rng(1)
    noise_std = σ * units.scale
    y = MIXTURE.sample(1000, rng) + noise_std * rng.standard_normal((1000, 2))
    r, J = moments_at(ae, units.to_model(y).astype(np.float64))
    mean, covariance = MIXTURE.posterior(y, noise_std)
    A = (J + np.swapaxes(J, 1, 2)) / 2
    error = np.linalg.norm((units.to_user(r) - mean) / units.scale, axis=1)
    assert np.median(error) < 0.03
    away = units.covariance_to_user(σ**2 * A) - covariance
    relative = np.linalg.norm(away, axis=(1, 2)) / np.linalg.norm(covariance, axis=(1, 2))
    assert np.median(relative) < 0.10


def test_a_daes_jacobian_becomes_symmetric_with_eigenvalues_in_the_unit_interval(
    of_the_mixture: tuple[AutoEncoder, PreparedData],
) -> None:
    """J is a covariance over σ², so it must be."""
    ae, prepared = of_the_mixture
    y = MIXTURE.sample(500, np.random.default_rng(2))
    _, J = moments_at(ae, prepared.normaliser.to_model(y).astype(np.float64))
    skew = np.linalg.norm(J - np.swapaxes(J, 1, 2), axis=(1, 2))
    assert np.median(skew / np.linalg.norm(J, axis=(1, 2))) < 0.08
    values = np.linalg.eigvalsh((J + np.swapaxes(J, 1, 2)) / 2)
    assert np.quantile(values, 0.02) > -0.05


def test_a_daes_tangents_lie_along_the_spiral(tmp_path: Path) -> None:
    """The top eigenvector of the local covariance, at new points: median angle below 5°."""
    law, rng = Spiral(), np.random.default_rng(0)
    ae, prepared = trained(
        tmp_path,
        "spiral",
        law.sample(10_000, rng),
        model={"hidden": [64], "unit": "silu", "blocks": 2},
        criterion={"kind": "dae", "sigma": 0.15},
        training={"epochs": 40, "batch": 256, "learning_rate": 5e-3},
    )
    units, x = prepared.normaliser, law.sample(300, rng)
    z = units.to_model(x).astype(np.float64)
    r, J = moments_at(ae, z)
    local = [
        estimate_moments(z[i], r[i], full_spectrum(J[i]), 0.15**2, "asymptotic") for i in range(300)
    ]
    top = np.stack([convert_to_data_units(moments, units).tangents[0] for moments in local])
    cosine = np.abs((top * law.tangent(x)).sum(1)).clip(0, 1)
    assert np.degrees(np.median(np.arccos(cosine))) < 5
    spread = np.stack([moments.eigenvalues for moments in local])
    assert np.median(spread[:, 1] / spread[:, 0]) < 0.2  # one direction stands out
