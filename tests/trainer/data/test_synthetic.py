"""Closed forms equal numerical results: integrals on a grid, samples, a search on the curve."""

import numpy as np
import pytest

from trainer.data import DataOptions, GaussianMixture, Spiral, load
from trainer.data.synthetic import make_gaussian, make_mixture


@pytest.fixture
def two_in_the_plane():
    C = np.array([[[1.0, 0.6], [0.6, 0.5]], [[0.2, -0.1], [-0.1, 0.8]]])
    return GaussianMixture(np.array([0.7, 0.3]), np.array([[0.0, 0.0], [2.0, 1.0]]), C)


def density(law, x):
    out = np.zeros(len(x))
    for w, m, C in zip(law.weights, law.means, law.covariances, strict=True):
        z = x - m
        quadratic = np.einsum("ni,ij,nj->n", z, np.linalg.inv(C), z)
        out += w * np.exp(-quadratic / 2) / np.sqrt(np.linalg.det(2 * np.pi * C))
    return out


def test_posterior_equals_the_integral_over_a_grid(two_in_the_plane):
    s = np.array([0.5, 0.8])
    axis = np.linspace(-7, 9, 801)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    prior = density(two_in_the_plane, grid)
    points = np.array([[0.3, -0.2], [1.0, 1.5], [3.0, 0.0]])
    mean, covariance = two_in_the_plane.posterior(points, s)
    for y, m, C in zip(points, mean, covariance, strict=True):
        w = prior * np.exp(-(((y - grid) / s) ** 2).sum(1) / 2)
        w /= w.sum()
        expected = w @ grid
        away = grid - expected
        np.testing.assert_allclose(m, expected, atol=1e-6)
        np.testing.assert_allclose(C, (away * w[:, None]).T @ away, atol=1e-6)


def test_posterior_of_one_gaussian_is_linear_with_one_covariance():
    law = make_gaussian()
    C, m, s = law.covariances[0], law.means[0], np.full(8, 0.7)
    x = law.sample(5, np.random.default_rng(0))
    mean, covariance = law.posterior(x, s)
    G = C @ np.linalg.inv(C + np.diag(s**2))
    np.testing.assert_allclose(mean, m + (x - m) @ G.T)
    np.testing.assert_allclose(covariance, np.broadcast_to(C - G @ C, (5, 8, 8)), atol=1e-12)


def test_posterior_mean_is_tweedies_formula(two_in_the_plane):
    """E[X | y] = y + s² ∇ log p(y), with the smoothed density differentiated numerically."""
    s, h, y = np.array([0.5, 0.8]), 1e-5, np.array([[0.8, 0.4]])
    smoothed = GaussianMixture(
        two_in_the_plane.weights,
        two_in_the_plane.means,
        two_in_the_plane.covariances + np.diag(s**2),
    )
    steps = h * np.eye(2)
    score = (np.log(density(smoothed, y + steps)) - np.log(density(smoothed, y - steps))) / (2 * h)
    np.testing.assert_allclose(
        two_in_the_plane.posterior(y, s)[0][0], y[0] + s**2 * score, rtol=1e-7
    )


def test_posterior_stays_finite_far_from_every_component(two_in_the_plane):
    mean, covariance = two_in_the_plane.posterior(np.array([[1e4, -1e4]]), np.array([0.1, 0.1]))
    assert np.isfinite(mean).all() and np.linalg.eigvalsh(covariance[0]).min() > 0


def test_samples_have_the_mean_and_covariance_of_the_law():
    law = make_mixture()
    x = law.sample(200_000, np.random.default_rng(0))
    m = law.weights @ law.means
    away = law.means - m
    C = (
        np.einsum("k,kij->ij", law.weights, law.covariances)
        + (away * law.weights[:, None]).T @ away
    )
    np.testing.assert_allclose(x.mean(0), m, atol=0.02)
    np.testing.assert_allclose(np.cov(x.T), C, atol=0.03)


def test_the_tangent_of_the_spiral_is_that_of_the_nearest_curve_point():
    law = Spiral()
    x = law.sample(200, np.random.default_rng(0)) + 0.01
    t = np.linspace(law.first, law.last, 100_001)
    c = law.pitch * t[:, None] * np.stack([np.cos(t), np.sin(t)], 1)
    along = np.gradient(c, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    nearest = [((c - p) ** 2).sum(1).argmin() for p in x]
    cosine = np.abs((law.tangent(x) * along[nearest]).sum(1))
    assert cosine.min() > 1 - 1e-6
    np.testing.assert_allclose(law.nearest(x), t[nearest], atol=1e-4)


def test_spiral_samples_lie_on_the_curve_up_to_the_noise():
    law = Spiral()
    x = law.sample(5000, np.random.default_rng(0))
    t = law.nearest(x)
    c = law.pitch * t[:, None] * np.stack([np.cos(t), np.sin(t)], 1)
    distance = np.linalg.norm(x - c, axis=1)
    assert np.sqrt((distance**2).mean()) == pytest.approx(law.noise, rel=0.05)


@pytest.mark.parametrize("name", ["gaussian", "mixture", "spiral"])
def test_synthetic_data_is_reproducible_from_its_seed(name):
    one, same, other = (load(DataOptions(name, rows=50, seed=s)) for s in (1, 1, 2))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert one.rows == 50 and one.law is not None and one.source.dtype == np.float32
    assert load(DataOptions(name)).rows == 20_000
