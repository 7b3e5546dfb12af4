"""The search finds the scale that is known to be right, and rejects the others."""

from dataclasses import replace

import numpy as np
import pytest

from localmoments.model import Model
from trainer.evaluate.chains import Budget
from trainer.evaluate.features import Classifier, Network, fit_principal
from trainer.evaluate.rows import read_split, rows_for
from trainer.evaluate.scales import (
    Criterion,
    Trial,
    candidate_scales,
    choose_scale,
    scales_between,
    search_scale,
)


def with_scale(model, scale, **more):
    gibbs = replace(model.manifest.kernels["gibbs"], scale=scale)
    manifest = replace(model.manifest, kernels={"gibbs": gibbs}, **more)
    return Model(model.folder, manifest, threads=1)


@pytest.fixture(scope="module")
def criterion(exact):
    model, _, prepared = exact
    rows = rows_for(
        prepared.dataset, prepared.split, model.manifest.normaliser, read_split(model.manifest)
    )
    return Criterion(rows, fit_principal(rows.train.x), is_table=True)


BUDGET = Budget(search_walkers=2_000, search_steps=60, search_kept=1)


@pytest.mark.parametrize("start", [0.5, 1.0, 2.0])
def test_the_search_finds_scale_one_for_gibbs_on_gaussian_data(exact, criterion, start):
    """Its stationary covariance is s² C, so s = 1 alone gives the data's."""
    found = search_scale(with_scale(exact[0], start), "gibbs", criterion, BUDGET, lambda n: None)
    assert 0.9 < found["chosen"] < 1.2
    assert found["calibrated"] == start


def test_a_second_search_tries_the_same_scales(exact):
    first = candidate_scales(exact[0].manifest, "gibbs")
    figures = {"scales": {"gibbs": {"calibrated": 1.0, "chosen": 4.0}}}
    later = with_scale(exact[0], 4.0, evaluation=figures)
    assert candidate_scales(later.manifest, "gibbs") == first


def test_a_model_that_is_told_its_noise_level_stays_within_the_trained_levels(exact):
    levels = replace(exact[0].manifest, noise_levels=(0.3, 0.6))
    scales = candidate_scales(levels, "gibbs")
    assert min(scales) == pytest.approx(0.3 / 0.5) and max(scales) == pytest.approx(0.6 / 0.5)
    assert len(set(scales)) == len(scales)
    halved = replace(levels, noise_levels=(0.1, 0.6), recipe={"sampling": {"halvings": 2}})
    assert min(candidate_scales(halved, "gibbs")) == pytest.approx(4 * 0.1 / 0.5)


def trials(**distances):
    return {
        float(k[1:].replace("_", ".")): None if v is None else Trial(v)
        for k, v in distances.items()
    }


def test_the_largest_scale_within_five_percent_of_the_best_is_chosen():
    assert choose_scale(trials(s0_5=1.0, s1=1.04, s2=1.2)) == 1.0
    assert choose_scale(trials(s0_5=None, s1=3.0)) == 1.0
    assert choose_scale(trials(s0_5=-1e-5, s1=1e-3)) == 0.5, "a distance may fall below zero"
    assert choose_scale(trials(s0_5=None)) is None and scales_between(trials(s0_5=None)) == []


def test_a_rejected_scale_is_chosen_only_if_all_are_rejected():
    rejected, fair = Trial(1.0, is_accepted=False), Trial(2.0)
    assert choose_scale({1.0: rejected, 2.0: fair}) == 2.0
    assert choose_scale({1.0: rejected, 2.0: Trial(3.0, is_accepted=False)}) == 1.0


def test_the_second_round_tries_scales_halfway_to_both_neighbours_of_the_best():
    assert scales_between(trials(s1=3.0, s4=1.0, s16=2.0)) == pytest.approx([2.0, 8.0])
    assert scales_between(trials(s1=1.0, s4=3.0)) == pytest.approx([2.0])


def test_if_all_chains_diverge_the_old_scale_is_kept(exact, criterion):
    found = search_scale(with_scale(exact[0], 1e30), "gibbs", criterion, BUDGET, lambda n: None)
    assert set(found["tried"].values()) == {"diverged"} and found["chosen"] == 1e30


def test_samples_that_lose_classes_are_rejected(exact, criterion):
    class Sides(Classifier):
        def predict(self, x):
            return (x[:, 0] > np.median(criterion.rows.validation.x[:, 0])).astype(np.int64)

        def __call__(self, x):
            return x

    sides = Sides(Network((2, 4), 2), np.array([0, 1]), 1.0)
    both = Criterion(criterion.rows, sides, is_table=False)
    real = criterion.rows.validation.x
    assert both(real).is_accepted
    assert not both(real[real[:, 0] > np.quantile(real[:, 0], 0.6)]).is_accepted


def test_samples_away_from_the_data_are_rejected_in_tables(criterion):
    real = criterion.rows.validation.x
    noise = np.random.default_rng(0).standard_normal(real.shape).astype(np.float32)
    assert criterion(real).is_accepted and not criterion(real + 2 * noise).is_accepted
