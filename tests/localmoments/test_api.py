"""The public API: names, examples, `load`, and errors that say what to change."""

import doctest
import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import localmoments
from localmoments import ArtefactError, InputError, Model

ROOT = Path(__file__).resolve().parents[2]


def test_every_public_name_can_be_imported_and_no_other_is_offered() -> None:
    for name in localmoments.__all__:
        assert getattr(localmoments, name).__doc__
        assert name in dir(localmoments)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = localmoments.lode


@pytest.mark.parametrize("module", ["localmoments", "localmoments.model"])
def test_examples_in_docstrings_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("LOCALMOMENTS_MODELS", raising=False)
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0 and results.failed == 0


@pytest.fixture
def models(tiny_artefact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models with two versions of one, as the working directory's `models`."""
    for version in ("2", "10"):
        shutil.copytree(tiny_artefact, tmp_path / "models/tiny" / version)
        manifest = tmp_path / "models/tiny" / version / "manifest.json"
        text = manifest.read_text().replace('"version": "1"', f'"version": "{version}"')
        manifest.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCALMOMENTS_MODELS", raising=False)
    return tmp_path / "models"


@pytest.mark.parametrize(
    ("path_or_name", "version"),
    [
        ("models/tiny", "10"),
        ("models/tiny/2", "2"),
        ("tiny", "10"),
        ("tiny@2", "2"),
        (Path("models/tiny"), "10"),
    ],
)
def test_a_model_is_found_by_folder_name_and_version(
    models: Path, path_or_name: Any, version: str
) -> None:
    model = localmoments.load(path_or_name)
    assert (model.name, model.version, model.dims) == ("tiny", version, 8)


def test_names_are_looked_up_in_the_folder_of_the_environment(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("LOCALMOMENTS_MODELS", str(models))
    assert localmoments.load("tiny").version == "10"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tine", "There is no model 'tine': .* models has tiny"),
        ("tiny@3", "There is no model 'tiny@3': .* tiny has 2, 10"),
        ("elsewhere/tiny", "neither the folder elsewhere/tiny nor"),
    ],
)
def test_a_model_that_is_not_there_is_named_with_those_that_are(
    models: Path, name: str, words: str
) -> None:
    with pytest.raises(ArtefactError, match=words):
        localmoments.load(name)


def test_a_single_row_gives_results_without_a_leading_axis(tiny_served: Model) -> None:
    x = tiny_served.sample(2, seed=1, steps=3)
    many, one = tiny_served.reconstruct(x), tiny_served.reconstruct(x[1])
    assert many.reconstruction.shape == (2, 8) and one.reconstruction.shape == (8,)
    assert one.error == many.error[1]
    assert np.array_equal(one.reconstruction, many.reconstruction[1])
    rows, row = tiny_served.moments(x, rank=2), tiny_served.moments(x[1], rank=2)
    assert rows.tangents is not None and row.tangents is not None
    assert np.array_equal(rows.tangents[1], row.tangents)


def test_a_chain_keeps_every_thin_th_step_after_burn_in(tiny_served: Model) -> None:
    steps = list(tiny_served.chain(2, steps=9, seed=3))
    thin = list(tiny_served.chain(2, steps=6, thin=2, burn_in=3, seed=3))
    assert len(steps) == 9 and len(thin) == 3
    assert all(np.array_equal(a, b) for a, b in zip(thin, steps[4::2], strict=True))
    assert np.array_equal(tiny_served.sample(2, steps=6, burn_in=3, seed=3), steps[-1])


def test_samples_differ_without_a_seed(tiny_served: Model) -> None:
    assert not np.array_equal(tiny_served.sample(2, steps=1), tiny_served.sample(2, steps=1))


ROW = [0.5] * 8


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.reconstruct([1.0, 2.0]), "x has 2 columns, but tiny@1 takes 8"),
        (lambda m: m.reconstruct([["a"] * 8]), "x must be an array of numbers"),
        (lambda m: m.reconstruct(np.zeros((2, 2, 8))), r"its shape is \(2, 2, 8\)"),
        (lambda m: m.reconstruct([[np.nan] * 8]), r"x\[0\]\[0\] is nan"),
        (lambda m: m.reconstruct(ROW, sigma=9.0), "sigma is 9"),
        (lambda m: m.moments([[1e30] * 8]), r"x\[0\]\[0\] is 1e\+30, which is too far"),
        (lambda m: m.moments(ROW, rank=0), "`rank` must be at least 1"),
        (lambda m: m.moments(ROW, estimator="exact"), "`estimator` must be one of"),
        (lambda m: m.moments(ROW, units="feet"), "`units` must be one of"),
        (lambda m: m.moments(ROW, include=["median"]), "`include` may hold"),
        (lambda m: m.sample(0), "`n` must be at least 1"),
        (lambda m: m.sample(2, steps=0), "`steps` must be at least 1"),
        (lambda m: m.sample(2, burn_in=-1), "`burn_in` must not be negative"),
        (lambda m: m.sample(2, seed=-1), "`seed` must be from 0"),
        (lambda m: m.sample(2, kernel="nuts"), "tiny@1 has no kernel 'nuts'; it has"),
        (lambda m: m.sample(2, scale=-1), "`scale` must be a positive number"),
        (lambda m: m.sample(2, floor=np.nan), "`floor` must be a number from 0"),
        (lambda m: m.sample(2, emit="median"), "`emit` must be 'mean' or 'noisy'"),
        (lambda m: m.sample(2, start="zero"), "`start` must be 'data', 'noise' or points"),
        (lambda m: m.sample(3, start=[ROW, ROW]), "start has 2 points for 3 walkers"),
        (lambda m: m.sample(2, clamp={"mask": [True] * 8}), '`clamp` must have "mask"'),
        (
            lambda m: m.sample(2, clamp={"mask": ["x"] * 8, "values": ROW}),
            "clamp.mask must be booleans",
        ),
        (
            lambda m: m.sample(2, clamp={"mask": [True] * 7, "values": ROW}),
            "clamp.mask has 7 columns",
        ),
    ],
)
def test_an_argument_that_does_not_fit_is_named(tiny_served: Model, call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(tiny_served)
