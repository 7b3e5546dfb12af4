"""The affine map between the user's units and the model's."""

import numpy as np

from localmoments.columns import Normaliser

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


def test_float32_is_given_only_where_it_holds_all_that_the_model_knew() -> None:
    pixels, times = Normaliser(np.zeros(3), np.full(3, 255.0)), UNITS
    huge = Normaliser(np.zeros(3), np.full(3, 1e33))  # a chain may go as far as 1e6 of these
    z = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    assert (pixels.dtype, times.dtype, huge.dtype) == (np.float32, np.float64, np.float64)
    for units in (pixels, times, huge):
        x, exact = units.to_user(z), units.to_user(z.astype(np.float64))
        assert x.dtype == units.dtype and exact.dtype == np.float64
        np.testing.assert_allclose(x, exact, rtol=2**-23)


def test_what_is_within_for_every_feature_is_within_for_each() -> None:
    low, high = UNITS.within(2.0)
    for x in (low, high):  # here no value is within for all three
        assert (np.abs(x - SHIFT) > 2 * SCALE).any()
    low, high = Normaliser(np.array([0.0, 1.0]), np.array([1.0, 2.0])).within(3.0)
    assert (low, high) == (-3.0, 3.0)
