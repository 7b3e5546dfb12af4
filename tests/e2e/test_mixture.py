"""Local moments of a Gaussian mixture through HTTP, against the posterior in closed form.

X ~ (N(m + u, C) + N(m - u, C)) / 2 in the model's units, seen through noise σ: with S = C + σ² I,

    r(z) = m + C S⁻¹ (z - m) + σ² S⁻¹ u tanh(uᵀ S⁻¹ (z - m)),

which one layer of tanh units computes: one unit is the tanh above, and D units in their linear
range make the linear part.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from localmoments.columns import Normaliser

D, SIGMA = 4, 0.6
SMALL = 3e-3  # tanh(SMALL z) / SMALL is z to a few millionths
NPY, NPZ = "application/x-npy", "application/x-npz"
ALL = "mean,tangents,covariance,score"


@dataclass(frozen=True)
class Mixture:
    """The distribution, in the model's units."""

    m: Any  # (d,)
    u: Any  # (d,)
    C: Any  # (d, d)

    @property
    def S(self) -> Any:
        return self.C + SIGMA**2 * np.eye(D)

    def weights(self) -> dict[str, Any]:
        """The weights of the auto-encoder that minimises the denoising criterion here."""
        v = np.linalg.solve(self.S, self.u)
        W = np.vstack([SMALL * np.eye(D), v])  # (d + 1, d)
        V = np.hstack([self.C @ np.linalg.inv(self.S) / SMALL, SIGMA**2 * v[:, None]])  # (d, d + 1)
        return {
            "encoder.0.weight": W,
            "encoder.0.bias": -W @ self.m,
            "decoder.0.weight": V,
            "decoder.0.bias": self.m,
        }

    def posterior(self, z: Any) -> tuple[Any, Any]:
        """E and Cov[X | X + σε = z], (d,) and (d, d), from the components, without derivatives."""
        gain = self.C @ np.linalg.inv(self.S)
        centres = np.array([self.m + self.u, self.m - self.u])
        away = z - centres
        energies = np.einsum("ki,ij,kj->k", away, np.linalg.inv(self.S), away) / 2
        w = np.exp(energies.min() - energies)
        w /= w.sum()
        means = centres + away @ gain.T
        mean = w @ means
        within = self.C - gain @ self.C
        return mean, within + np.einsum("k,ki,kj->ij", w, means - mean, means - mean)

    def log_density(self, z: Any) -> float:
        """The log-density of X + σε at z, up to a constant."""
        away = z - np.array([self.m + self.u, self.m - self.u])
        return float(np.log(np.exp(
            -np.einsum("ki,ij,kj->k", away, np.linalg.inv(self.S), away) / 2
        ).sum()))  # fmt: skip


@pytest.fixture(scope="module")
def served(
    build: Callable[..., tuple[Path, Normaliser]], start: Callable[..., Any], tmp_path_factory: Any
) -> tuple[httpx.Client, Mixture, Normaliser]:
    rng = np.random.default_rng(8)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    truth = Mixture(
        rng.standard_normal(D), Q[0] * 1.2 + Q[1] * 0.5, (Q * [0.6, 0.3, 0.1, 0.02]) @ Q.T
    )
    model = {"hidden": [D + 1], "unit": "tanh", "decoder": "linear", "tied": False}
    criterion = {"kind": "dae", "sigma": SIGMA}
    folder, units = build("mixture", model, criterion, lambda units: truth.weights())
    models = tmp_path_factory.mktemp("models")
    (models / "mixture").mkdir()
    folder.rename(models / "mixture/1")
    return start(models).http, truth, units


@pytest.fixture(scope="module")
def z() -> Any:
    """Points between the two components and around them: (40, d)."""
    return np.random.default_rng(9).standard_normal((40, D)) * 1.3


def test_moments_are_those_of_the_posterior(served: Any, z: Any) -> None:
    http, truth, units = served
    request = {"x": units.to_user(z).tolist(), "include": ALL.split(","), "rank": D}
    body = http.post("/moments", json=request).json()
    assert body["covariance_scale"] == "absolute"
    D_, mixed = np.outer(units.scale, units.scale), []
    for i in range(len(z)):
        mean, covariance = truth.posterior(z[i])
        got = (np.array(body["mean"][i]) - units.shift) / units.scale
        np.testing.assert_allclose(got, mean, atol=2e-4)
        np.testing.assert_allclose(np.array(body["covariance"][i]) / D_, covariance, atol=2e-4)
        values, vectors = np.linalg.eigh(covariance * D_)
        np.testing.assert_allclose(body["eigenvalues"][i], values[::-1], rtol=2e-3, atol=1e-5)
        assert abs(vectors[:, -1] @ body["tangents"][i][0]) > 0.9999
        mixed.append(np.abs(mean - truth.m) @ np.abs(truth.u))
    assert np.ptp(mixed) > 0.5  # the points do see both components


def test_the_score_is_the_gradient_of_the_smoothed_log_density(served: Any, z: Any) -> None:
    http, truth, units = served
    body = http.post("/moments", json={"x": units.to_user(z[:8]).tolist()}).json()
    h = 1e-5
    for i in range(8):
        steps = [h * e for e in np.eye(D)]
        slope = [
            (truth.log_density(z[i] + e) - truth.log_density(z[i] - e)) / (2 * h) for e in steps
        ]
        np.testing.assert_allclose(np.array(body["score"][i]) * units.scale, slope, atol=2e-3)


def test_json_and_binary_responses_have_the_same_bits(served: Any, z: Any) -> None:
    http, _, units = served
    x = units.to_user(z)
    stream = io.BytesIO()
    np.save(stream, x)
    parameters = {"include": ALL, "rank": 3}
    as_json = http.post("/moments", json={"x": x.tolist()}, params=parameters).json()
    headers = {"content-type": NPY, "accept": NPZ}
    response = http.post("/moments", content=stream.getvalue(), params=parameters, headers=headers)
    arrays = np.load(io.BytesIO(response.content))
    assert set(arrays) == set(as_json)
    assert all(np.array_equal(arrays[name], as_json[name]) for name in arrays)


def test_gibbs_visits_both_components_equally_often(served: Any) -> None:
    """Its stationary law is the mixture, so half of the samples lie on each side of m."""
    http, truth, units = served
    request = {"walkers": 200, "steps": 60, "thin": 20, "burn_in": 40, "seed": 1}
    samples = np.array(http.post("/sample", json=request).json()["samples"])
    z = (samples - units.shift) / units.scale
    side = np.sign((z - truth.m) @ np.linalg.solve(truth.S, truth.u))
    assert abs(side.mean()) < 0.25  # 600 samples, hardly independent within a walker
    np.testing.assert_allclose(z.mean(axis=(0, 1)), truth.m, atol=0.25)
