"""Everything that is found at a point, on Gaussian data: r(x) = m + A (x - m), A = C (C + σ²)⁻¹."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from localmoments.errors import InputError
from localmoments.graph_calls import run_calls
from localmoments.model import Model
from localmoments.moments import MomentsField, MomentsSpec, find_moments, plan_spectra
from localmoments.trust import PROBES, typicality_statistics

SIGMA = 0.5
Maker = Callable[..., Model]


def rotation(d: int, seed: int = 0) -> Any:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def gaussian(make: Maker, c: Any, sigma: float = SIGMA, **facts: Any) -> Model:
    """The optimal auto-encoder of N(m, Q diag(c) Qᵀ), with rows of it as its start points."""
    d, rng = len(c), np.random.default_rng(1)
    m, Q = rng.standard_normal(d), rotation(d)
    points = m + (rng.standard_normal((200, d)) * np.sqrt(c)) @ Q.T
    levels = {"sigma": sigma, "moments_sigma": sigma, "alpha": sigma**2}
    return make(c / (c + sigma**2), Q, m, points, **{**levels, **facts})


def ask(model: Model, x: Any, *fields: MomentsField, full: int = 128, **how: Any) -> Any:
    spec = MomentsSpec(include=frozenset(fields) or None, **how)
    return run_calls(model, find_moments(model, x, spec, full, 4_000_000))


@pytest.fixture(scope="module")
def decaying() -> Any:
    return np.array([4.0, 2.0, 1.0, 0.5, 0.2, 0.1])


@pytest.fixture(scope="module")
def plain(make_linear: Maker, decaying: Any) -> Model:
    return gaussian(make_linear, decaying)


def changed(model: Model, **facts: Any) -> Model:
    return Model(model.folder, replace(model.manifest, **facts), threads=1)


@pytest.fixture(scope="module")
def mixed(make_linear: Maker, decaying: Any) -> Model:
    """Columns whose scales lie over two decades."""
    return gaussian(make_linear, decaying, scale=10 ** np.linspace(-1, 1, 6))


def test_inverted_moments_in_data_units_give_back_the_gaussian(mixed: Model, decaying: Any) -> None:
    D, Q = mixed.manifest.normaliser.scale, rotation(6)
    x = mixed.start_points()[:3] * D
    C = (Q * decaying) @ Q.T * D * D[:, None]
    for full in (128, 1):
        got = ask(mixed, x, "mean", "covariance", "tangents", "trust",
                  full=full, estimator="inverted", rank=6)  # fmt: skip
        m = np.random.default_rng(1).standard_normal(6)
        for i in range(3):
            np.testing.assert_allclose(got.mean[i], m * D, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(got.covariance[i], C, rtol=1e-3, atol=1e-3 * C.max())
            assert got.trust[i].shrunk == 0


@pytest.mark.parametrize("full", [128, 1])
def test_tangents_and_covariance_agree_in_both_units(
    mixed: Model, decaying: Any, full: int
) -> None:
    D, Q = mixed.manifest.normaliser.scale, rotation(6)
    A = (Q * (decaying / (decaying + SIGMA**2))) @ Q.T
    x = mixed.start_points()[:2] * D
    for units, E in (("data", D), ("standard", np.ones(6))):
        whole = ask(mixed, x, "covariance", units=units)
        got = ask(mixed, x, "tangents", "mean", "score", units=units, full=full, rank=3)
        C = SIGMA**2 * A * E * E[:, None]
        values, vectors = np.linalg.eigh(C)
        np.testing.assert_allclose(whole.covariance[0], C, rtol=1e-4, atol=1e-5 * C.max())
        np.testing.assert_allclose(got.eigenvalues[0], values[::-1][:3], rtol=1e-4)
        overlap = np.abs(got.tangents[0] @ vectors[:, ::-1][:, :3])
        np.testing.assert_allclose(overlap, np.eye(3), atol=2e-3)
        r = got.mean[0] / E
        np.testing.assert_allclose(got.score[0], (r - x[0] / D) / SIGMA**2 / E, rtol=1e-3)
        assert got.units == units and np.array_equal(got.x, x)


def test_inverted_in_data_units_is_refused_where_the_whole_jacobian_is_too_large(
    mixed: Model,
) -> None:
    spec = MomentsSpec(estimator="inverted")
    with pytest.raises(InputError, match="units=standard"):
        plan_spectra(mixed, 10, spec, 1, 359)
    assert plan_spectra(mixed, 10, spec, 1, 360).whole
    assert not plan_spectra(mixed, 10, replace(spec, units="standard"), 1, 359).whole


@pytest.mark.parametrize(("d", "k"), [(6, 2), (160, 12)])
def test_the_dimension_of_a_gaussian_subspace_tends_to_its_own(
    make_linear: Maker, d: int, k: int
) -> None:
    """k directions of variance 1, in d dimensions; tr J is exact up to 128 of them."""
    c = np.where(np.arange(d) < k, 1.0, 0.0)
    off = []
    for sigma in (0.3, 0.03):
        model = gaussian(make_linear, c, sigma)
        got = ask(model, model.start_points()[:50], "dimension").dimension
        probes = 4 * np.sqrt(2 * k / PROBES) if d > 128 else 0
        off.append(np.abs(got - k).max())
        assert off[-1] < k * 1.5 * sigma + probes
        if d <= 128:
            x = model.start_points()[:50] - np.random.default_rng(1).standard_normal(d)
            expected = k / (1 + sigma**2) + sigma**2 * np.square(x).sum(1) / (1 + sigma**2) ** 2
            np.testing.assert_allclose(got, expected, rtol=1e-3)
    assert d > 128 or off[1] < off[0] / 10


def test_the_typicality_statistics_is_what_it_says(plain: Model, decaying: Any) -> None:
    """‖x − r‖² − σ² tr J, with both parts in closed form."""
    x, m = plain.start_points(), np.random.default_rng(1).standard_normal(6)
    A = (rotation(6) * (decaying / (decaying + SIGMA**2))) @ rotation(6).T
    moved = np.square((x - m) @ (np.eye(6) - A)).sum(1)
    expected = moved - SIGMA**2 * np.trace(A)
    np.testing.assert_allclose(typicality_statistics(plain, x, SIGMA), expected, atol=1e-5)


@pytest.mark.parametrize("d", [6, 160])
def test_typicality_is_a_rows_percentile_among_the_recorded(
    make_linear: Maker, plain: Model, d: int
) -> None:
    model = plain if d == 6 else gaussian(make_linear, np.geomspace(4, 0.01, d))
    rows = model.start_points()
    t = typicality_statistics(model, rows, SIGMA)
    typical = tuple(np.quantile(t, np.linspace(0, 1, 101)).tolist())
    model = changed(model, typical=typical)
    got = ask(model, rows[:20], "trust").trust
    for i in range(20):
        assert got[i].typicality == pytest.approx(100 * (t < t[i]).sum() / 199, abs=1.5)
        assert got[i].exact == (d <= 128)
    far = rows[:1] + 30 * rotation(d)[:, -1].astype(np.float32)  # across, where r must move it
    [trust] = ask(model, far, "trust").trust
    assert trust.typicality == 100 and "not like the data" in " ".join(trust.warnings)


def test_typicality_is_unknown_at_another_noise_level_than_the_recorded(tiny_served: Model) -> None:
    model = changed(tiny_served, typical=tuple(np.linspace(0, 10, 101).tolist()))
    x = model.manifest.normaliser.to_user(model.start_points()[:2])
    [here, _] = ask(model, x, "trust").trust
    [elsewhere, _] = ask(model, x, "trust", sigma=0.9).trust
    assert model.manifest.moments_sigma != 0.9
    assert here.typicality is not None and elsewhere.typicality is None


def test_sound_moments_carry_no_indicators_unless_asked_and_unsound_ones_do(
    make_linear: Maker, plain: Model
) -> None:
    x = plain.start_points()[:3]
    assert ask(plain, x).trust is None
    asked = ask(plain, x, "trust").trust
    assert all(t.asymmetry < 1e-5 and t.mass_below_zero < 1e-5 and not t.warnings for t in asked)
    wide = make_linear(np.full(6, 1.8), rotation(6), np.zeros(6))  # λ = 1.8 everywhere
    unasked = ask(wide, x).trust
    assert all("exceeds 1" in " ".join(t.warnings) and t.asymmetry is None for t in unasked)


def test_one_bad_point_among_good_ones_is_the_one_that_is_marked(plain: Model) -> None:
    t = typicality_statistics(plain, plain.start_points(), SIGMA)
    model = changed(plain, typical=tuple(np.quantile(t, np.linspace(0, 1, 101)).tolist()))
    middle = model.start_points()[np.argsort(t)[95:97]]
    x = np.stack([middle[0], middle[0] + 50, middle[1]])
    trust = ask(model, x).trust
    assert [each is None for each in trust] == [True, False, True]


@pytest.mark.parametrize("part", ["score", "dimension"])
def test_what_needs_the_scale_is_refused_where_it_is_unknown(
    plain: Model, part: MomentsField
) -> None:
    model = changed(plain, covariance_scale="relative")
    with pytest.raises(InputError, match=f"up to a factor, so `{part}` is unknown"):
        plan_spectra(model, 1, MomentsSpec(include=frozenset({part})), 128, 10**6)
    got = ask(model, model.start_points()[:1])
    assert got.score is None and got.mean is not None and got.tangents is not None


def test_a_curve_needs_a_range_of_noise_levels(plain: Model) -> None:
    with pytest.raises(InputError, match="ask for `dimension` instead"):
        plan_spectra(plain, 1, MomentsSpec(include=frozenset({"dimension_curve"})), 128, 10**6)
