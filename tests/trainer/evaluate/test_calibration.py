"""The paper's claims on models whose right figures are known in closed form."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_lyapunov

from localmoments.columns import Normaliser
from localmoments.model import Model
from trainer.data import GaussianMixture
from trainer.evaluate import claims_figures, run
from trainer.evaluate.calibration import (
    FEWEST,
    WIDE_ROWS,
    Local,
    calibration_figures,
    compute_local_moments,
    gaussian_window,
    make_ball_window,
    moments_in,
    neighbour_figures,
    wide_ball,
    wide_gaussian_window,
)
from trainer.evaluate.consistency import consistency_figures, local_figures
from trainer.evaluate.report import claims_sections
from trainer.evaluate.rows import Part, Rows
from trainer.prepare import PreparedData

Matrix = NDArray[np.float64]
SIGMA = 0.5


@dataclass(frozen=True)
class Case:
    """N(m, C) in the model's units, and r(x) = m + A (x - m) with A = C (C + σ²I)⁻¹ as graphs."""

    model: Model
    m: Matrix
    C: Matrix
    A: Matrix
    rows: Rows


@pytest.fixture(scope="module")
def case(exact: tuple[Model, GaussianMixture, PreparedData]) -> Case:
    model, truth, prepared = exact
    units = prepared.normaliser
    C = truth.covariances[0] / np.outer(units.scale, units.scale)
    m = (truth.means[0] - units.shift) / units.scale
    A = C @ np.linalg.inv(C + SIGMA**2 * np.eye(len(m)))
    rng = np.random.default_rng(5)
    x = rng.multivariate_normal(m, C, size=30_000).astype(np.float32)
    train, validation, test = (Part(part, None) for part in (x[:20_000], x[:10], x[20_000:]))
    return Case(model, m, C, A, Rows(train, validation, test, units, "all of them", {}))


def corrupted(case: Case, n: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    x = case.rows.test.x[:n]
    noise = np.random.default_rng(1).standard_normal(x.shape)
    return x, (x + SIGMA * noise).astype(np.float32)


def test_the_best_linear_auto_encoder_is_calibrated(case: Case) -> None:
    """Both ratios are 1; what is left is Monte Carlo error, which the figures state."""
    x, noisy = corrupted(case, 10_000)
    found = calibration_figures(compute_local_moments(case.model, noisy, 0), x, SIGMA)
    assert abs(found["trace ratio"] - 1) < 4 * found["trace ratio, error"] < 0.05
    assert abs(found["z²"] - 1) < 4 * found["z², error"] < 0.05
    assert found["leading eigenvalue"] == pytest.approx(np.linalg.eigvalsh(case.A)[-1], rel=1e-5)


def test_a_jacobian_that_claims_half_of_the_variance_has_twice_the_ratio(case: Case) -> None:
    x, noisy = corrupted(case, 1_000)
    right = compute_local_moments(case.model, noisy, 0)
    half = replace(right, traces=right.traces / 2, eigenvalues=[λ / 2 for λ in right.eigenvalues])
    a, b = calibration_figures(right, x, SIGMA), calibration_figures(half, x, SIGMA)
    assert b["trace ratio"] == pytest.approx(2 * a["trace ratio"])
    assert b["z²"] == pytest.approx(2 * a["z²"], rel=1e-3)


def test_probes_and_krylov_spaces_find_what_the_whole_jacobian_has(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch for many columns, on few: traces within probe noise, the same eigenpairs."""
    _, noisy = corrupted(case, 300)
    whole = compute_local_moments(case.model, noisy, 0)
    monkeypatch.setattr("trainer.evaluate.calibration.FULL_JACOBIAN_DIMS", 0)
    probed = compute_local_moments(case.model, noisy, 10)
    assert len(probed.tangents) == 10
    assert probed.traces.mean() == pytest.approx(np.trace(case.A), rel=0.05)
    np.testing.assert_array_equal(probed.r, whole.r)
    np.testing.assert_allclose(probed.eigenvalues[3], whole.eigenvalues[3], atol=1e-5)


@pytest.mark.parametrize("h", [0.5, 0.7, 1.5])
def test_a_gaussian_window_of_any_width_gives_the_posterior_of_gaussian_data(h: float) -> None:
    """m_h and C_h, corrected by 1/α = 1/σ² - 1/h², are E and Cov[X | X + σε = x₀]; h = σ needs no
    correction."""
    rng = np.random.default_rng(0)
    m, C = np.array([0.3, -0.2]), np.array([[0.8, 0.3], [0.3, 0.4]])
    x = rng.multivariate_normal(m, C, size=400_000)
    x0 = np.array([1.0, 0.5])
    G = C @ np.linalg.inv(C + SIGMA**2 * np.eye(2))
    alpha = None if h == SIGMA else 1 / (1 / SIGMA**2 - 1 / h**2)
    d2 = np.square(x - x0).sum(1)
    found = moments_in(gaussian_window(d2, h, None, alpha), x.astype(np.float32), x0)
    np.testing.assert_allclose(found.mean, m + G @ (x0 - m), atol=0.01)
    covariance = (found.vectors.T * found.eigenvalues) @ found.vectors
    np.testing.assert_allclose(covariance, C - G @ C, atol=0.006)


def test_a_ball_around_all_rows_gives_the_posterior_of_gaussian_data() -> None:
    """Eq. rJ-solutions with m₀ = m and C₀ = C."""
    rng = np.random.default_rng(0)
    m, C = np.array([0.3, -0.2]), np.array([[0.8, 0.3], [0.3, 0.4]])
    x = rng.multivariate_normal(m, C, size=100_000)
    x0 = np.array([1.0, 0.5])
    found = moments_in(
        make_ball_window(np.square(x - x0).sum(1), 50.0, SIGMA**2), x.astype(np.float32), x0
    )
    G = C @ np.linalg.inv(C + SIGMA**2 * np.eye(2))
    np.testing.assert_allclose(found.mean, m + G @ (x0 - m), atol=0.01)
    assert found.eigenvalues.sum() == pytest.approx(SIGMA**2 * np.trace(G), rel=0.01)


def test_fewer_rows_than_columns_have_the_same_eigenpairs_either_way() -> None:
    """Of the 5 × 5 matrix of products, against the 9 × 9 covariance."""
    x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    found = moments_in(make_ball_window(np.zeros(5), 1.0), x, np.zeros(9))
    C = np.cov(x.T.astype(np.float64), bias=True)
    np.testing.assert_allclose((found.vectors.T * found.eigenvalues) @ found.vectors, C, atol=1e-6)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(4), atol=1e-6)


def test_wide_windows_hold_about_100_effective_rows() -> None:
    d2 = np.square(np.random.default_rng(0).standard_normal((5_000, 30))).sum(1)
    assert gaussian_window(d2, 0.3).effective < FEWEST
    assert WIDE_ROWS <= wide_gaussian_window(d2, 0.3).effective < 1.2 * WIDE_ROWS
    assert wide_ball(d2, 0.3).effective == pytest.approx(WIDE_ROWS, abs=1.5)
    assert make_ball_window(d2, 1e-3).effective == 0


def test_neighbours_of_gaussian_data_agree_with_the_model(case: Case) -> None:
    """d = 8 and 20,000 rows: the narrow window drops points, the wide one compares them all."""
    _, noisy = corrupted(case, 60)
    found = neighbour_figures(
        compute_local_moments(case.model, noisy, 0), case.rows.train.x, SIGMA, 60
    )
    wide = found["wide gaussian window"]
    assert wide["points compared"] == 60
    assert wide["mean error"] < 0.1 < 0.8 < wide["mean error, other point"]
    assert wide["captured variance"] > 0.9
    assert wide["trace ratio"] == pytest.approx(1, abs=0.1)
    narrow = found["gaussian window"]
    assert narrow["points compared"] > 20
    assert narrow["mean error"] < 0.15


def test_points_without_neighbours_are_dropped_and_counted() -> None:
    train = np.random.default_rng(0).standard_normal((500, 2)).astype(np.float32)
    far = np.full((3, 2), 100.0)
    local = Local(far, far, np.ones(3), [np.ones(2)] * 3, [np.eye(2)] * 3)
    found = neighbour_figures(local, train, 0.1, 3)
    assert found["ball"] == {"points compared": 0}


def test_the_moment_chain_has_the_covariance_of_the_lyapunov_equation(case: Case) -> None:
    """C_π = A C_π Aᵀ + s²σ²A, and the identities of a settled chain hold."""
    found = consistency_figures(case.model, case.rows.train.x, np.random.default_rng(0))
    s = found["scale"]
    Cπ = solve_discrete_lyapunov(case.A, s**2 * SIGMA**2 * case.A)
    ratio = np.trace(Cπ) / np.trace(case.C)
    assert found["tr C_π / tr C of the data"] == pytest.approx(ratio, rel=0.08)
    assert found["(E tr Σ + tr Cov μ) / tr C_π"] == pytest.approx(1, abs=0.03)
    assert found["E‖x' - μ‖² / E tr Σ"] == pytest.approx(1, abs=0.03)
    assert found["mean error"] < 0.03


def test_steps_far_below_the_radius_are_consistent_and_large_ones_are_not() -> None:
    """An autoregression x' = (1 - η) x + √(2η - η²) ε has π = N(0, I) for every η."""
    rng = np.random.default_rng(0)
    found = {}
    for step in (0.01, 0.7):
        x = rng.standard_normal((20_000, 2))
        mu = (1 - step) * x
        following = mu + np.sqrt(2 * step - step**2) * rng.standard_normal(x.shape)
        figures = local_figures(x, mu, following, x.astype(np.float32), x[:40])
        found[step] = figures["ball of 10% of the samples"]
    assert found[0.01]["mean error"] < 0.03
    assert found[0.01]["covariance ratio"] == pytest.approx(0.98, abs=0.01)  # (1 - η)²
    assert found[0.7]["mean error"] > 0.5
    assert found[0.01]["mean error against the data"] < 1e-6  # these are the data


def test_the_card_shows_the_figures_of_the_claims(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CLAIM_ROWS", 200)
    figures = claims_figures(case.model, case.rows)
    assert list(figures["calibration"]) == ["0.5"]
    text = "\n\n".join(claims_sections(figures))
    assert f"{figures['calibration']['0.5']['trace ratio']:.3f} ±" in text
    assert "missing factor" not in text
    relative = {**figures, "covariance scale": "relative"}
    assert "missing factor" in "\n\n".join(claims_sections(relative))


def test_rows_in_other_units_have_the_same_figures(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come in the units of the figures (for images, pixels in [0, 1]), not in the model's."""
    monkeypatch.setattr(run, "CLAIM_ROWS", 500)
    monkeypatch.setattr(run, "consistency_figures", lambda *_: {"chain": "not walked"})
    own = case.model.manifest.normaliser
    units = Normaliser(own.shift + 1, own.scale * 10)

    def moved(part: Part) -> Part:
        return Part(units.to_model(np.asarray(own.to_user(part.x), np.float64)), None)

    rows = case.rows
    other = Rows(moved(rows.train), moved(rows.validation), moved(rows.test), units, "", {})
    a, b = (claims_figures(case.model, r) for r in (rows, other))
    assert b["calibration"]["0.5"]["trace ratio"] == pytest.approx(
        a["calibration"]["0.5"]["trace ratio"], rel=1e-4
    )


def test_a_chain_that_diverges_is_reported(case: Case) -> None:
    kernels = case.model.manifest.kernels
    wild = {"moment": replace(kernels["moment"], scale=1e6)}
    model = Model(case.model.folder, replace(case.model.manifest, kernels=wild), threads=1)
    found = consistency_figures(model, case.rows.train.x, np.random.default_rng(0))
    assert found == {"chain": "diverged"}
