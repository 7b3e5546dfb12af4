"""Which rows judge: none that were learnt from, none that chose anything where there are enough."""

from dataclasses import replace

import numpy as np
import pytest

from localmoments.columns import Normaliser
from trainer.data import ArraySource, DataOptions, Dataset, Split, load, split
from trainer.evaluate.rows import (
    CHOSE_BEFORE_RECORDS,
    SplitRecord,
    held_rows,
    part_held_out,
    read_record,
    rows_for,
    spread,
    units_of,
)

RECORD = SplitRecord(20_140, {"weights": 2_000, "scales": 256, "start points": 300})


def parts(rows, held_out):
    return Split(np.arange(rows - held_out), np.arange(rows - held_out, rows))


def test_spread_rows_are_those_that_training_picks(tiny_prepared):
    from trainer.prepare import held_out_rows

    index = spread(tiny_prepared.split.validation, 7)
    z = tiny_prepared.normaliser.to_model(tiny_prepared.dataset.source.take(index))
    assert np.array_equal(z, held_out_rows(tiny_prepared, 7).numpy())


def test_of_much_data_the_rows_that_fit_chose_by_do_not_judge():
    p = parts(60_000, 10_000)
    validation, test, words = part_held_out(p, RECORD)
    assert not np.intersect1d(validation, test).size
    assert np.array_equal(np.union1d(validation, test), p.validation)
    for count in RECORD.chose.values():
        assert np.isin(spread(p.validation, count), validation).all()
    assert f"{len(test):,} of the 10,000 held-out rows" in words and len(test) > 7_000
    assert "chose the weights, the scales and the start points" in words


def test_of_little_data_a_random_half_of_the_held_out_rows_judges_and_the_words_say_so():
    """Every second row would be one of two populations where a file takes turns."""
    p = parts(6_000, 600)
    validation, test, words = part_held_out(p, RECORD)
    assert len(validation) == len(test) == 300 and not np.intersect1d(validation, test).size
    assert np.array_equal(np.union1d(validation, test), p.validation)
    assert 0.4 < (test % 2).mean() < 0.6 and np.abs(np.corrcoef(test % 2, test > 5_700)[0, 1]) < 0.2
    assert "a random half" in words and "helped to choose the weights" in words


def test_the_recorded_seed_gives_the_same_test_rows_and_another_seed_others():
    p = parts(600, 60)
    again = part_held_out(p, replace(RECORD))[1]
    assert np.array_equal(part_held_out(p, RECORD)[1], again)
    assert not np.array_equal(part_held_out(p, replace(RECORD, seed=1))[1], again)


class TestTheRecord:
    def test_is_in_the_manifest_and_says_what_fit_did(self, digits_model, digits):
        m = digits_model.manifest
        held_out = len(digits.split.validation)
        assert m.data["split"] == {
            "seed": 20_140,
            "held_out": "random",
            "chose": {"weights": held_out, "scales": held_out, "start points": 16},
        }
        assert read_record(m) == SplitRecord(20_140, m.data["split"]["chose"])

    def test_is_read_and_not_rebuilt(self, digits_model):
        """Whatever today's constants are, the artefact's own numbers count."""
        chose = {"weights": 7, "something later": 3}
        data = {**digits_model.manifest.data, "split": {"seed": 5, "chose": chose}}
        assert read_record(replace(digits_model.manifest, data=data)) == SplitRecord(5, chose)

    def test_of_an_older_artefact_is_what_was_in_force_then(self, digits_model):
        data = {k: v for k, v in digits_model.manifest.data.items() if k != "split"}
        record = read_record(replace(digits_model.manifest, data=data))
        assert CHOSE_BEFORE_RECORDS == {"weights": 2_000, "scales": 256}
        assert record == SplitRecord(20_140, {**CHOSE_BEFORE_RECORDS, "start points": 16})

    def test_with_it_the_split_can_be_made_again(self, digits):
        """As the documentation says: a random choice by the seed, sorted."""
        rng = np.random.default_rng(20_140)
        held_out = rng.choice(digits.dataset.rows, 180, replace=False, shuffle=False)
        assert np.array_equal(np.sort(held_out), digits.split.validation)


def test_rows_to_judge_by_were_never_learnt_from(tiny_prepared):
    held = held_rows(tiny_prepared.dataset, tiny_prepared.split)
    seen = {row.tobytes() for row in held.train}
    assert len(held.test) == 40 and not any(row.tobytes() in seen for row in held.test)


def test_labels_go_with_their_rows(digits):
    units = Normaliser(np.zeros(64), np.ones(64))
    rows = rows_for(digits.dataset, digits.split, units, RECORD)
    labelled = {
        row.tobytes(): int(y)
        for row, y in zip(digits.dataset.source.read(0, 10**6), digits.dataset.labels, strict=True)
    }
    for part in (rows.train, rows.validation, rows.test):
        found = [labelled[row.tobytes()] for row in part.x]
        assert found == part.labels.tolist()


def test_another_file_is_judged_by_all_of_its_rows(tmp_path, digits):
    x, y = digits.dataset.source.read(0, 50), digits.dataset.labels[:50]
    np.savez(tmp_path / "official.npz", x=x, y=y)
    other = load(DataOptions(str(tmp_path / "official.npz"), image=(8, 8)))
    rows = rows_for(digits.dataset, digits.split, digits.normaliser, RECORD, other)
    assert np.array_equal(rows.test.x, x) and np.array_equal(rows.test.labels, y)
    assert len(rows.validation) == len(digits.split.validation)
    assert rows.words == "all 50 rows of official.npz"


@pytest.mark.parametrize("dtype, factor", [(np.uint8, 255), (np.float32, 1), (np.float32, 255)])
def test_pixels_end_between_zero_and_one_whatever_they_were(dtype, factor):
    x = (factor * np.random.default_rng(0).random((50, 9))).astype(dtype)
    dataset = Dataset("x", ArraySource(x), None, (3, 3), None, None, "", ())
    parted_rows = split(dataset, DataOptions("x"))
    units = units_of(dataset, Normaliser(np.full(9, 3.0), np.full(9, 7.0)), parted_rows.train)
    assert np.all(units.shift == 0) and np.all(units.scale == factor)
    table = replace(dataset, image=None)
    own = Normaliser(np.full(9, 3.0), np.full(9, 7.0))
    assert units_of(table, own, parted_rows.train) is own
