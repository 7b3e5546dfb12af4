"""Which rows judge: none that were learnt from, none that chose anything where there are enough."""

from dataclasses import replace

import numpy as np
import pytest

from service.core.normaliser import Normaliser
from trainer.data import ArraySource, DataOptions, Dataset, Split, load, split
from trainer.evaluate.rows import held_rows, parted, rows_for, spread, units_of
from trainer.export import CALIBRATION_ROWS
from trainer.fit import VALIDATION_ROWS


def parts(rows, held_out):
    return Split(np.arange(rows - held_out), np.arange(rows - held_out, rows))


def test_spread_rows_are_those_that_training_picks(tiny_prepared):
    from trainer.prepare import held_out_rows

    index = spread(tiny_prepared.split.validation, 7)
    z = tiny_prepared.normaliser.to_model(tiny_prepared.dataset.source.take(index))
    assert np.array_equal(z, held_out_rows(tiny_prepared, 7).numpy())


def test_of_much_data_the_test_rows_chose_nothing():
    p = parts(60_000, 10_000)
    validation, test, words = parted(p, start_points=300)
    assert not np.intersect1d(validation, test).size
    assert np.array_equal(np.union1d(validation, test), p.validation)
    for count in (VALIDATION_ROWS, CALIBRATION_ROWS, 300):
        assert np.isin(spread(p.validation, count), validation).all()
    assert f"{len(test):,} of the 10,000 held-out rows" in words and len(test) > 7_000


def test_of_little_data_half_of_the_held_out_rows_test_and_the_words_say_so():
    p = parts(600, 60)
    validation, test, words = parted(p, start_points=300)
    assert len(validation) == len(test) == 30 and not np.intersect1d(validation, test).size
    assert not np.isin(test, p.train).any() and "chose which weights were kept" in words


def test_rows_to_judge_by_were_never_learnt_from(tiny_prepared):
    held = held_rows(tiny_prepared.dataset, tiny_prepared.split)
    seen = {row.tobytes() for row in held.train}
    assert len(held.test) == 40 and not any(row.tobytes() in seen for row in held.test)


def test_labels_go_with_their_rows(digits):
    units = Normaliser(np.zeros(64), np.ones(64))
    rows = rows_for(digits.dataset, digits.split, units, 16)
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
    rows = rows_for(digits.dataset, digits.split, digits.normaliser, 16, other)
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
