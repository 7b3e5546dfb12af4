"""Test rows were not trained on, and chose nothing where there are enough rows."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localmoments import artefact as manifests
from localmoments.columns import Normaliser
from localmoments.errors import ArtefactError
from trainer.data import ArraySource, DataOptions, Dataset, Split, load, split
from trainer.data.split import spread
from trainer.evaluate.rows import (
    BEFORE_RECORDS,
    SplitRecord,
    divide_held_out,
    held_rows,
    read_split,
    rows_for,
    split_again,
    units_of,
)

MODELS = Path(__file__).parents[3] / "models"
RECORD = SplitRecord(20_140, {"weights": 2_000, "scales": 256, "start points": 300}, 10_000, 1_000)


def parts(rows, held_out):
    return Split(np.arange(rows - held_out), np.arange(rows - held_out, rows))


def test_spread_rows_are_those_that_training_picks(tiny_prepared):
    from trainer.prepare import held_out_rows

    index = spread(tiny_prepared.split.held_out, 7)
    z = tiny_prepared.normaliser.to_model(tiny_prepared.dataset.source.take(index))
    assert np.array_equal(z, held_out_rows(tiny_prepared, 7).numpy())


def test_rows_that_fit_chose_by_are_not_test_rows_of_a_large_set():
    p = parts(60_000, 10_000)
    validation, test, description = divide_held_out(p, RECORD)
    assert not np.intersect1d(validation, test).size
    assert np.array_equal(np.union1d(validation, test), p.held_out)
    for count in RECORD.chose.values():
        assert np.isin(spread(p.held_out, count), validation).all()
    assert f"{len(test):,} of the 10,000 held-out rows" in description and len(test) > 7_000
    assert "used to select the weights, the scales and the start points" in description


def test_the_test_rows_of_a_small_set_are_a_random_half_and_the_description_says_so():
    """Every second row would be one of two populations where a file takes turns."""
    p = parts(6_000, 600)
    validation, test, description = divide_held_out(p, RECORD)
    assert len(validation) == len(test) == 300 and not np.intersect1d(validation, test).size
    assert np.array_equal(np.union1d(validation, test), p.held_out)
    assert 0.4 < (test % 2).mean() < 0.6 and np.abs(np.corrcoef(test % 2, test > 5_700)[0, 1]) < 0.2
    assert "a random half" in description and "also used to select the weights" in description


def test_the_recorded_seed_decides_the_test_rows():
    p = parts(600, 60)
    again = divide_held_out(p, replace(RECORD))[1]
    assert np.array_equal(divide_held_out(p, RECORD)[1], again)
    assert not np.array_equal(divide_held_out(p, replace(RECORD, seed=1))[1], again)


class TestTheRecord:
    def test_the_manifest_says_what_fit_did(self, digits_model, digits):
        m = digits_model.manifest
        held_out = len(digits.split.held_out)
        assert m.data["split"] == {
            "seed": 20_140,
            "most_held_out": 10_000,
            "fewest_test_rows": 1_000,
            "held_out": "random",
            "chose": {"weights": held_out, "scales": held_out, "start points": 16},
        }
        assert read_split(m) == SplitRecord(20_140, m.data["split"]["chose"], 10_000, 1_000)

    def test_the_numbers_of_the_manifest_count_and_not_those_of_the_code(self, digits_model):
        chose = {"weights": 7, "something later": 3}
        record = {"seed": 5, "chose": chose, "most_held_out": 9, "fewest_test_rows": 4}
        data = {**digits_model.manifest.data, "split": record}
        assert read_split(replace(digits_model.manifest, data=data)) == SplitRecord(5, chose, 9, 4)

    def test_an_older_manifest_has_the_numbers_of_the_code_that_wrote_it(self, digits_model):
        data = {k: v for k, v in digits_model.manifest.data.items() if k != "split"}
        record = read_split(replace(digits_model.manifest, data=data))
        chose = {"weights": 2_000, "scales": 256, "start points": 16}
        assert record == SplitRecord(20_140, chose, 10_000, 1_000)
        assert (
            SplitRecord(20_140, {"weights": 2_000, "scales": 256}, 10_000, 1_000) == BEFORE_RECORDS
        )

    @pytest.mark.parametrize("name", ["mnist-dae", "mnist-cae", "spiral-dae", "digits-dae"])
    def test_other_constants_do_not_turn_validation_rows_of_a_shipped_model_into_test_rows(
        self, name, monkeypatch
    ):
        """mnist-dae has a record without the newer numbers, mnist-cae and spiral-dae have none."""
        manifest = manifests.read(MODELS / name / "1")
        total = manifest.data["rows"]
        held_out = np.arange(50_000, 60_000) if name.startswith("mnist") else None
        source = ArraySource(np.zeros((total, 1), np.float32))
        dataset = Dataset("x", source, None, None, None, None, "", (), held_out)
        options = DataOptions("x", holdout=manifest.recipe["data"].get("holdout", 0.1))

        def divide():
            again = split_again(dataset, options, manifest)
            return again, divide_held_out(again, read_split(manifest))

        before, (validation, test, _) = divide()
        assert len(before.held_out) == manifest.data["held_out_rows"]
        for constant, value in (
            ("SPLIT_SEED", 1), ("MOST_HELD_OUT", 100), ("FEWEST_TEST_ROWS", 9_000)
        ):  # fmt: skip
            monkeypatch.setattr(sys.modules["trainer.data.split"], constant, value)
        after, (validation_after, test_after, _) = divide()
        assert np.array_equal(before.held_out, after.held_out)
        assert np.array_equal(validation, validation_after)
        assert np.array_equal(test, test_after) and not np.isin(test_after, validation).any()

    def test_another_number_of_held_out_rows_of_the_same_data_is_refused(self, digits):
        """MNIST's held-out rows are set by a constant of the code, which is not in the record."""
        dataset = digits.dataset
        data = {"fingerprint": dataset.fingerprint, "held_out_rows": 181}
        manifest = replace(manifests.read(MODELS / "digits-dae/1"), data=data)
        with pytest.raises(
            ArtefactError, match="181 held-out rows, but this version holds out 180"
        ):
            split_again(dataset, DataOptions("digits"), manifest)
        other = replace(dataset, fingerprint="of other data")
        assert len(split_again(other, DataOptions("digits"), manifest).held_out) == 180

    def test_the_split_can_be_repeated_from_the_record(self, digits):
        """As the documentation says: a random choice by the seed, sorted."""
        rng = np.random.default_rng(20_140)
        held_out = rng.choice(digits.dataset.rows, 180, replace=False, shuffle=False)
        assert np.array_equal(np.sort(held_out), digits.split.held_out)


def test_held_out_rows_were_not_trained_on(tiny_prepared):
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


def test_all_rows_of_another_file_are_test_rows(tmp_path, digits):
    x, y = digits.dataset.source.read(0, 50), digits.dataset.labels[:50]
    np.savez(tmp_path / "official.npz", x=x, y=y)
    other = load(DataOptions(str(tmp_path / "official.npz"), image=(8, 8)))
    rows = rows_for(digits.dataset, digits.split, digits.normaliser, RECORD, other)
    assert np.array_equal(rows.test.x, x) and np.array_equal(rows.test.labels, y)
    assert len(rows.validation) == len(digits.split.held_out)
    assert rows.description == "all 50 rows of official.npz"


@pytest.mark.parametrize("dtype, factor", [(np.uint8, 255), (np.float32, 1), (np.float32, 255)])
def test_pixels_are_scaled_to_zero_to_one(dtype, factor):
    x = (factor * np.random.default_rng(0).random((50, 9))).astype(dtype)
    dataset = Dataset("x", ArraySource(x), None, (3, 3), None, None, "", ())
    parted_rows = split(dataset, DataOptions("x"))
    units = units_of(dataset, Normaliser(np.full(9, 3.0), np.full(9, 7.0)), parted_rows.train)
    assert np.all(units.shift == 0) and np.all(units.scale == factor)
    table = replace(dataset, image=None)
    own = Normaliser(np.full(9, 3.0), np.full(9, 7.0))
    assert units_of(table, own, parted_rows.train) is own
