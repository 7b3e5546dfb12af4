"""The affine map between the user's units and the model's."""

import numpy as np

from service.core.normaliser import Normaliser

SHIFT, SCALE = np.array([1.5, -2.0, 1.7e9]), np.array([0.5, 3.0, 1e4])
UNITS = Normaliser(SHIFT, SCALE)


def test_to_user_undoes_to_model_to_float32() -> None:
    x = SHIFT + SCALE * np.random.default_rng(0).standard_normal((100, 3))
    z = UNITS.to_model(x)
    assert z.dtype == np.float32
    np.testing.assert_allclose((UNITS.to_user(z) - x) / SCALE, 0, atol=1e-6)


def test_seconds_since_1970_keep_their_differences() -> None:
    """float32 would round a time of 1.7e9 to 128 seconds."""
    times = np.array([[0.0, 0.0, 1.7e9], [0.0, 0.0, 1.7e9 + 1]])
    z = UNITS.to_model(times)[:, 2]
    np.testing.assert_allclose(z[1] - z[0], 1e-4, rtol=1e-6)


def test_covariances_map_by_d_c_d_and_scores_by_the_inverse() -> None:
    rng = np.random.default_rng(1)
    z = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 3))
    small = Normaliser(SHIFT[:2].repeat(2)[:3], SCALE[:2].repeat(2)[:3])
    np.testing.assert_allclose(
        small.covariance_to_user(np.cov(z.T)), np.cov(small.to_user(z).T), rtol=1e-9
    )
    stack = np.stack([np.eye(3), np.ones((3, 3))])
    D = np.diag(SCALE)
    np.testing.assert_allclose(UNITS.covariance_to_user(stack), D @ stack @ D)
    # the score of N(0, C) is -C⁻¹ z in the model's units and -(D C D)⁻¹ D z in the user's
    C = np.cov(z.T)
    score = UNITS.score_to_user(-np.linalg.solve(C, z[0]))
    np.testing.assert_allclose(score, -np.linalg.solve(D @ C @ D, D @ z[0]), rtol=1e-6)


def test_the_identity_hands_floats_through() -> None:
    same = Normaliser(np.zeros(3), np.ones(3))
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    assert same.is_identity and not UNITS.is_identity
    assert same.to_model(x) is x
    np.testing.assert_array_equal(same.to_user(x), x)
    assert same.to_model(x.astype(np.float64)[:, ::-1]).flags["C_CONTIGUOUS"]
