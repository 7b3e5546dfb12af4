"""Validation rows are disjoint from the training rows and the same in every run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.data import ArraySource, DataOptions, Dataset, load, split
from trainer.errors import DataError, RecipeError


def dataset(rows, held_out=None):
    return Dataset("d", ArraySource(np.zeros((rows, 1))), None, None, None, None, "", (), held_out)


holdouts = st.one_of(st.floats(1e-6, 0.999999), st.integers(1, 30_000))


@given(rows=st.integers(2, 40_000), holdout=holdouts)
@settings(max_examples=50, deadline=None)
def test_a_split_is_disjoint_complete_and_repeatable(rows, holdout):
    options = DataOptions("x", holdout=holdout)
    if isinstance(holdout, int) and holdout >= rows:
        with pytest.raises(DataError, match="none is left"):
            split(dataset(rows), options)
        return
    parts = split(dataset(rows), options)
    together = np.concatenate([parts.train, parts.held_out])
    np.testing.assert_array_equal(np.sort(together), np.arange(rows))
    assert 1 <= len(parts.held_out) <= 10_000 and len(parts.train) >= 1
    again = split(dataset(rows), DataOptions("x", holdout=holdout, seed=99))
    np.testing.assert_array_equal(again.held_out, parts.held_out)


def test_the_holdout_is_a_fraction_or_a_number_and_is_capped():
    assert len(split(dataset(1000), DataOptions("x")).held_out) == 100
    assert len(split(dataset(1000), DataOptions("x", holdout=7)).held_out) == 7
    assert len(split(dataset(200_000), DataOptions("x")).held_out) == 10_000


def test_validation_rows_are_spread_over_all_rows():
    rows = split(dataset(100_000), DataOptions("x")).held_out
    counts, _ = np.histogram(rows, bins=10, range=(0, 100_000))
    assert abs(counts - 1000).max() < 150


def test_one_row_cannot_be_split():
    with pytest.raises(DataError, match="at least one of each"):
        split(dataset(1), DataOptions("x"))


def test_a_data_set_with_its_own_validation_rows_keeps_them():
    parts = split(dataset(10, np.array([7, 8, 9])), DataOptions("x"))
    assert parts.held_out.tolist() == [7, 8, 9] and parts.train.tolist() == list(range(7))


def test_tens_of_millions_of_rows_split_in_seconds():
    source = ArraySource(np.broadcast_to(np.zeros((1, 1), np.uint8), (20_000_000, 1)))
    large = Dataset("d", source, None, None, None, None, "", ())
    parts = split(large, DataOptions("x"))
    assert len(parts.train) == 20_000_000 - 10_000


@pytest.mark.parametrize("holdout", [0, -3, 0.0, 1.0, 500.0])
def test_an_invalid_holdout_is_a_recipe_error(holdout):
    with pytest.raises(RecipeError, match=r"data\.holdout"):
        DataOptions("x", holdout=holdout)


def test_the_validation_rows_of_digits_have_every_label():
    digits = load(DataOptions("digits"))
    parts = split(digits, DataOptions("digits"))
    assert set(digits.labels[parts.held_out]) == set(range(10))
