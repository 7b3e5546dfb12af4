"""Indicators against matrices whose every eigenvalue is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from localmoments.estimators import FULL_JACOBIAN_DIMS, LARGEST
from localmoments.spectrum import full_spectrum, leading_spectrum
from localmoments.trust import (
    PROBES,
    Trust,
    compute_trace,
    count_clipped,
    estimate_asymmetries,
    estimate_traces,
    find_percentile,
    make_probes,
    measure_masses,
)

Matrix = NDArray[np.float64]
SOUND = Trust(0.1, 0.01, 0.01, 3, 0, 50.0, exact=True)


def random_jacobian(d: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).standard_normal((d, d)) / np.sqrt(d)


def probed(J: Matrix) -> tuple[Matrix, Matrix]:
    """J v and Jᵀ v for every probe, of one point; (1, k, d)."""
    v = make_probes(len(J)).astype(np.float64)
    return (v @ J.T)[None], (v @ J)[None]


@pytest.mark.parametrize("d", [5, FULL_JACOBIAN_DIMS])
def test_trace_and_asymmetry_are_exact_in_few_columns(d: int) -> None:
    J = random_jacobian(d)
    jvp, vjp = probed(J)
    np.testing.assert_allclose(estimate_traces(jvp), np.trace(J))
    expected = np.linalg.norm(J - J.T) / np.linalg.norm(J + J.T)
    np.testing.assert_allclose(estimate_asymmetries(jvp, vjp), expected)


def test_a_symmetric_jacobian_has_no_asymmetry_and_a_rotation_has_more_than_any_bound() -> None:
    J = random_jacobian(6)
    assert estimate_asymmetries(*probed(J + J.T)) == 0
    assert estimate_asymmetries(*probed(J - J.T)) > 1e6


def test_probes_estimate_trace_and_asymmetry_in_many_columns() -> None:
    """Hutchinson: tr by a standard error of √(2/k) ‖A‖; the same probes every time."""
    J = random_jacobian(400) + np.eye(400)
    jvp, vjp = probed(J)
    A = (J + J.T) / 2
    assert jvp.shape[1] == PROBES and np.array_equal(make_probes(400), make_probes(400))
    assert abs(estimate_traces(jvp)[0] - np.trace(J)) < 4 * np.sqrt(2 / PROBES) * np.linalg.norm(A)
    expected = np.linalg.norm(J - J.T) / np.linalg.norm(J + J.T)
    np.testing.assert_allclose(estimate_asymmetries(jvp, vjp), expected, rtol=0.1)


def test_masses_are_shares_of_all_eigenvalue_mass() -> None:
    below, above = measure_masses(full_spectrum(np.diag([1.5, 0.5, -0.5, 0.0])))
    np.testing.assert_allclose([below, above], [0.5 / 2.5, 0.5 / 2.5])
    assert measure_masses(full_spectrum(np.diag([1.0, 0.3, 0.0]))) == (0.0, 0.0)
    assert measure_masses(full_spectrum(np.zeros((3, 3)))) == (0.0, 0.0)


def test_masses_from_a_krylov_space_are_near_those_of_all_eigenvalues() -> None:
    """The space has few of the eigenvalues, and mostly large ones; its weights make up for it."""
    values = np.concatenate([np.linspace(1.4, 0.6, 12), np.linspace(0.2, -0.15, 388)])
    Q = np.linalg.qr(np.random.default_rng(2).standard_normal((400, 400)))[0]
    A = (Q * values) @ Q.T
    found = leading_spectrum(lambda v: v @ A, 400, 8, np.ones(400))
    assert len(found.eigenvalues) < 200
    np.testing.assert_allclose(measure_masses(found), measure_masses(full_spectrum(A)), rtol=0.25)


def test_clipped_counts_what_the_estimator_replaces() -> None:
    spectrum = full_spectrum(np.diag([1.5, LARGEST, 0.5, -1e-9, -0.2]))
    assert count_clipped(spectrum, "asymptotic") == 1  # -1e-9 is rounding
    assert count_clipped(spectrum, "inverted") == 2


def test_the_trace_of_a_is_known_from_the_pairs_of_d_a_d() -> None:
    J, scale = random_jacobian(7), np.geomspace(0.1, 10, 7)
    np.testing.assert_allclose(compute_trace(full_spectrum(J)), np.trace(J))
    np.testing.assert_allclose(compute_trace(full_spectrum(J, scale), scale), np.trace(J))


def test_a_percentile_is_where_a_value_stands() -> None:
    typical = np.linspace(-1, 1, 101).tolist()
    assert [find_percentile(t, typical) for t in (-5, -1, 0, 0.5, 1, 9)] == [0, 0, 50, 75, 100, 100]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"asymmetry": 0.9}, "not a posterior mean"),
        ({"mass_below_zero": 0.4}, "40% of the eigenvalue mass is negative"),
        ({"mass_above_one": 0.3}, "30% of the eigenvalue mass exceeds 1"),
        ({"shrunk": 2}, "in 2 directions"),
        ({"typicality": 100.0}, "further than 100%"),
        ({"typicality": 0.0}, "less than 100%"),
    ],
)
def test_each_value_out_of_range_has_its_sentence(change: dict[str, float], words: str) -> None:
    [sentence] = Trust(**{**vars(SOUND), **change}).warnings
    assert words in sentence and sentence.endswith(".")


def test_values_in_range_and_values_that_are_not_known_have_none() -> None:
    assert SOUND.warnings == []
    unknown = Trust(None, None, None, 0, 0, None, exact=False)
    assert unknown.as_dict() == {"clipped": 0, "shrunk": 0, "exact": False, "warnings": []}
