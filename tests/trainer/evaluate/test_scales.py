"""The search finds the scale that is known to be right, and refuses what it must."""

from dataclasses import replace

import numpy as np
import pytest

from localmoments.model import Model
from trainer.evaluate.features import principal
from trainer.evaluate.plan import Plan
from trainer.evaluate.rows import read_record, rows_for
from trainer.evaluate.scales import Judge, Verdict, between, candidates, chosen, search_scale


def with_scale(model, scale, **more):
    gibbs = replace(model.manifest.kernels["gibbs"], scale=scale)
    manifest = replace(model.manifest, kernels={"gibbs": gibbs}, **more)
    return Model(model.folder, manifest, threads=1)


@pytest.fixture(scope="module")
def judge(exact):
    model, _, prepared = exact
    rows = rows_for(
        prepared.dataset, prepared.split, model.manifest.normaliser, read_record(model.manifest)
    )
    return Judge(rows, principal(rows.train.x), is_table=True)


PLAN = Plan(search_walkers=2_000, search_steps=60, search_kept=1)


@pytest.mark.parametrize("begin", [0.5, 1.0, 2.0])
def test_on_a_gaussian_gibbs_is_right_at_scale_one(exact, judge, begin):
    """Its stationary covariance is s² C, so s = 1 alone gives the data's."""
    found = search_scale(with_scale(exact[0], begin), "gibbs", judge, PLAN, lambda n: None)
    assert 0.9 < found["chosen"] < 1.2
    assert found["calibrated"] == begin


def test_a_second_search_tries_the_same_scales(exact):
    first = candidates(exact[0].manifest, "gibbs")
    figures = {"scales": {"gibbs": {"calibrated": 1.0, "chosen": 4.0}}}
    later = with_scale(exact[0], 4.0, evaluation=figures)
    assert candidates(later.manifest, "gibbs") == first


def test_a_model_that_knows_its_noise_level_stays_within_those_it_learnt(exact):
    levels = replace(exact[0].manifest, noise_levels=(0.3, 0.6))
    scales = candidates(levels, "gibbs")
    assert min(scales) == pytest.approx(0.3 / 0.5) and max(scales) == pytest.approx(0.6 / 0.5)
    assert len(set(scales)) == len(scales)
    halved = replace(levels, noise_levels=(0.1, 0.6), recipe={"sampling": {"halvings": 2}})
    assert min(candidates(halved, "gibbs")) == pytest.approx(4 * 0.1 / 0.5)


def verdicts(**distances):
    return {
        float(k[1:].replace("_", ".")): None if v is None else Verdict(v)
        for k, v in distances.items()
    }


def test_the_largest_of_those_about_as_good_as_the_best_is_chosen():
    assert chosen(verdicts(s0_5=1.0, s1=1.04, s2=1.2)) == 1.0
    assert chosen(verdicts(s0_5=None, s1=3.0)) == 1.0
    assert chosen(verdicts(s0_5=-1e-5, s1=1e-3)) == 0.5, "a distance may fall below zero"
    assert chosen(verdicts(s0_5=None)) is None and between(verdicts(s0_5=None)) == []


def test_a_refused_scale_is_chosen_only_where_all_are():
    refused, fair = Verdict(1.0, accepted=False), Verdict(2.0)
    assert chosen({1.0: refused, 2.0: fair}) == 2.0
    assert chosen({1.0: refused, 2.0: Verdict(3.0, accepted=False)}) == 1.0


def test_the_search_looks_halfway_to_both_neighbours_of_the_best():
    assert between(verdicts(s1=3.0, s4=1.0, s16=2.0)) == pytest.approx([2.0, 8.0])
    assert between(verdicts(s1=1.0, s4=3.0)) == pytest.approx([2.0])


def test_a_scale_whose_chains_leave_all_bounds_is_refused_and_the_old_one_kept(exact, judge):
    found = search_scale(with_scale(exact[0], 1e30), "gibbs", judge, PLAN, lambda n: None)
    assert set(found["tried"].values()) == {"out of bounds"} and found["chosen"] == 1e30


def test_samples_that_lose_classes_are_refused(exact, judge):
    from trainer.evaluate.classifier import Classifier, Network

    class Sides(Classifier):
        def predict(self, x):
            return (x[:, 0] > np.median(judge.rows.validation.x[:, 0])).astype(np.int64)

        def __call__(self, x):
            return x

    sides = Sides(Network((2, 4), 2), np.array([0, 1]), 1.0)
    both = Judge(judge.rows, sides, is_table=False)
    real = judge.rows.validation.x
    assert both(real).accepted
    assert not both(real[real[:, 0] > np.quantile(real[:, 0], 0.6)]).accepted


def test_samples_beside_the_data_are_refused_in_tables(judge):
    real = judge.rows.validation.x
    noise = np.random.default_rng(0).standard_normal(real.shape).astype(np.float32)
    assert judge(real).accepted and not judge(real + 2 * noise).accepted
