"""Streamed statistics equal NumPy's, and the values determine the normaliser."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.data import ArraySource, DataOptions, Dataset, describe, inspect_rows, load
from trainer.data.inspection import RunningMoments, compute_moments, compute_statistics
from trainer.errors import DataError, RecipeError


def dataset(x, image=None, features=None):
    return Dataset("d", ArraySource(np.asarray(x)), features, image, None, None, "sha256:0", ())


def inspect(x, normalise="auto", image=None, features=None, train=None):
    train = np.arange(len(x)) if train is None else train
    return inspect_rows(dataset(x, image, features), DataOptions("d", normalise=normalise), train)


def to_model_units(x, inspection):
    return (np.asarray(x, np.float64) - inspection.shift) / inspection.scale


@pytest.mark.parametrize("values", [1, 50, 10**6])
def test_streamed_moments_equal_numpys(values):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1003, 4)) * [1, 1e-3, 1e3, 1] + [0, 1e6, 0, -5]
    train = np.sort(rng.choice(1003, 800, replace=False))
    seen = compute_statistics(ArraySource(x), train, values)
    np.testing.assert_allclose(seen.moments.mean, x[train].mean(0), rtol=1e-12)
    np.testing.assert_allclose(seen.moments.std, x[train].std(0), rtol=1e-6)
    np.testing.assert_array_equal(seen.minimum, x.min(0))
    np.testing.assert_array_equal(seen.maximum, x.max(0))


def test_the_variance_is_accurate_when_the_mean_is_a_billion_times_larger():
    x = 1e9 + np.random.default_rng(0).normal(size=(20_000, 1))
    assert inspect(x).std[0] == pytest.approx(x.std(), rel=1e-6)


@given(data=st.data(), n=st.integers(2, 60))
@settings(max_examples=50, deadline=None)
def test_merged_moments_do_not_depend_on_the_blocks(data, n):
    x = np.random.default_rng(n).normal(3, 2, size=(n, 2))
    cuts = sorted(data.draw(st.lists(st.integers(1, n - 1), unique=True)))
    total = RunningMoments(0, np.zeros(2), np.zeros(2))
    for part in np.split(x, cuts):
        total = total.merge(compute_moments(part))
    np.testing.assert_allclose(total.mean, x.mean(0))
    np.testing.assert_allclose(total.std, x.std(0))


def test_mean_and_deviation_are_those_of_the_training_rows():
    x = np.array([[0.0], [2.0], [1000.0]])
    e = inspect(x, train=np.array([0, 1]))
    assert (e.mean[0], e.std[0], e.maximum[0]) == (1, 1, 1000)


def test_bytes_are_divided_by_255_and_get_a_sigmoid():
    e = inspect(np.array([[0, 255], [7, 9]], np.uint8))
    assert (e.scale == 255).all() and not e.shift.any() and e.decoder == "sigmoid"


def test_values_within_0_and_1_are_not_changed():
    for x in (
        [[0.0, 1.0], [0.5, 0.2]],
        np.array([[0, 1], [1, 0]], np.uint8),
        [[True, False], [False, True]],
    ):
        e = inspect(x)
        assert (e.scale == 1).all() and not e.shift.any() and e.decoder == "sigmoid"


def test_other_tables_are_standardised_by_column():
    x = np.random.default_rng(0).normal([5, -3], [0.1, 40], (500, 2))
    z = to_model_units(x, inspect(x))
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(z.std(0), 1)
    assert inspect(x).decoder == "linear"


def test_other_images_are_standardised_with_one_mean_and_deviation():
    x = np.random.default_rng(0).normal(np.arange(6), 2, (500, 6))
    e = inspect(x, image=(2, 3))
    assert np.ptp(e.shift) == 0 and np.ptp(e.scale) == 0
    assert e.shift[0] == pytest.approx(x.mean()) and e.scale[0] == pytest.approx(x.std())


def test_unit_scales_each_column_to_0_and_1_and_an_image_as_a_whole():
    x = np.array([[2.0, -10.0], [4.0, 30.0], [3.0, 0.0]])
    z = to_model_units(x, inspect(x, "unit"))
    assert z.min(0).tolist() == [0, 0] and z.max(0).tolist() == [1, 1]
    z = to_model_units(x, inspect(x, "unit", image=(1, 2)))
    assert (z.min(), z.max()) == (0, 1) and inspect(x, "unit").decoder == "sigmoid"


def test_none_changes_nothing_and_standard_always_standardises():
    x = np.array([[2.0, -10.0], [4.0, 30.0]])
    assert (inspect(x, "none").scale == 1).all() and inspect(x, "none").decoder == "linear"
    e = inspect(np.array([[0, 255], [10, 5]], np.uint8), "standard")
    assert e.decoder == "linear" and e.scale.tolist() == [5, 125]


def test_constant_columns_are_noted_and_keep_scale_1():
    x = np.column_stack(
        [np.random.default_rng(0).normal(size=99), np.full(99, 0.1), np.full(99, 7)]
    )
    e = inspect(x, features=("a", "b", "c"))
    assert e.scale[1:].tolist() == [1, 1]
    np.testing.assert_allclose(to_model_units(x, e)[:, 1:], 0, atol=1e-12)
    assert e.notes == ("Column 'b', column 'c' are constant: nothing to learn there.",)


def test_a_column_constant_in_the_training_rows_only_keeps_scale_1():
    x = np.column_stack([np.arange(100.0), np.full(100, 0.1)])
    x[99, 1] = 0.2
    assert inspect(x, train=np.arange(99)).scale[1] == 1


def test_equal_rows_are_refused():
    with pytest.raises(DataError, match="All rows of d are equal"):
        inspect(np.ones((5, 3)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("image", "name"), [(None, "column 3"), ((2, 2), r"pixel \(1, 1\)")])
def test_nan_and_infinite_values_are_named_and_counted(bad, image, name):
    x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    x[[7, 9], 3] = bad
    with pytest.raises(DataError, match=rf"d has 2 values .* row 7: {name} \(2\)"):
        inspect(x, image=image)


def test_values_beyond_float32_are_refused():
    with pytest.raises(DataError, match=r"Column 'big' of d has values from .* Rescale"):
        inspect(np.array([[1.0, 1e300], [2.0, 1.0]]), features=("a", "big"))


def test_the_description_shows_what_was_chosen():
    digits = load(DataOptions("digits"))
    text = describe(digits, inspect_rows(digits, DataOptions("digits"), np.arange(digits.rows)))
    for word in (
        "digits",
        "1,797",
        "8×8",
        "10 classes",
        "0 to 1",
        "sigmoid",
        "none",
        "and 54 more",
    ):
        assert word in text
    x = np.array([[1.0, 5.0], [3.0, 5.0]])
    table = dataset(x, features=("a", "b"))
    text = describe(table, inspect_rows(table, DataOptions("d"), np.arange(2)))
    assert "Column 'b' is constant" in text and "per column" in text and "linear" in text


def test_an_unknown_option_value_is_a_recipe_error():
    with pytest.raises(
        RecipeError, match=r"data\.normalise` must be one of auto, none, unit, standard; got 'x'"
    ):
        DataOptions("d", normalise="x")
    with pytest.raises(RecipeError, match=r"missing` must be one of refuse, drop, mean; got 'x'"):
        DataOptions("d", missing="x")
