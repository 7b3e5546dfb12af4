"""Against a known law: exact draws have ratio 1, anything else more."""

import numpy as np
import pytest

from localmoments.columns import Normaliser
from trainer.data.synthetic import SYNTHETIC
from trainer.evaluate.known_law import compare_with_law

LAWS = ["gaussian", "mixture", "spiral"]


def units_of(law):
    x = law.sample(5_000, np.random.default_rng(0))
    return Normaliser(x.mean(0), x.std(0))


@pytest.mark.parametrize("name", LAWS)
def test_exact_draws_have_a_ratio_of_about_one(name):
    law = SYNTHETIC[name]()
    ratios = [
        compare_with_law(law.sample(2_000, np.random.default_rng(seed)), law, units_of(law))[
            "ratio"
        ]
        for seed in range(4)
    ]
    assert np.mean(ratios) == pytest.approx(1, abs=0.2) and max(ratios) < 1.5


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("factor, shift", [(0.8, 0.0), (1.0, 0.3)])
def test_a_wrong_spread_or_place_shows_in_the_ratio_and_in_its_moment(name, factor, shift):
    law, units = SYNTHETIC[name](), units_of(SYNTHETIC[name]())
    x = law.sample(2_000, np.random.default_rng(1))
    wrong = x.mean(0) + factor * (x - x.mean(0)) + shift * units.scale
    found = compare_with_law(wrong, law, units)
    assert found["ratio"] > 1.5
    error = "mean error" if shift else "covariance error"
    assert found[error] > 3 * found[f"{error} between exact sets"]


def test_repeats():
    law = SYNTHETIC["mixture"]()
    x = law.sample(500, np.random.default_rng(1))
    assert compare_with_law(x, law, units_of(law)) == compare_with_law(x, law, units_of(law))
