"""An artefact that was made for real, opened, run, and damaged."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from localmoments.artefact import MANIFEST, START_POINTS, WEIGHTS, sha256
from localmoments.errors import ArtefactError
from localmoments.model import Model
from trainer.autoencoder import AutoEncoder
from trainer.export import ChainSetup


@pytest.fixture
def copy(tiny_artefact: Path, tmp_path: Path) -> Path:
    """A folder to damage."""
    return Path(shutil.copytree(tiny_artefact, tmp_path / "1"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Another manifest in the folder, its files' sums made to fit."""
    body = json.loads((folder / MANIFEST).read_text())
    change(body)
    body["files"] = {name: sha256(folder / name) for name in body["files"]}
    (folder / MANIFEST).write_text(json.dumps(body))


def test_every_graph_opens_and_has_the_border_that_its_manifest_promised(
    tiny_served: Model,
) -> None:
    for name, graph in tiny_served.manifest.graphs.items():
        session = tiny_served.session(name)
        assert [i.name for i in session.get_inputs()] == list(graph.inputs)
        assert [o.name for o in session.get_outputs()] == list(graph.outputs)
        assert session is tiny_served.session(name)  # opened once


def test_the_served_reconstruction_is_the_trained_models(
    tiny_served: Model, tiny_model: AutoEncoder
) -> None:
    x = np.random.default_rng(0).standard_normal((33, 8)).astype(np.float32)
    level = tiny_served.noise_level(33, 0.7)
    got = tiny_served.run("reconstruct", x=x, **level)["mean"]
    with torch.no_grad():
        expected = tiny_model(torch.from_numpy(x), torch.full((33, 1), 0.7)).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_a_conditioned_model_is_told_its_own_level_unless_another_is_asked_for(
    tiny_served: Model,
) -> None:
    sigma = tiny_served.manifest.sigma
    assert sigma == pytest.approx((0.2 * 1.0) ** 0.5)
    own, other = tiny_served.noise_level(3)["sigma"], tiny_served.noise_level(2, 0.3)["sigma"]
    assert own.shape == (3, 1) and own.dtype == np.float32
    np.testing.assert_allclose(own, sigma, rtol=1e-6)
    np.testing.assert_allclose(other, 0.3, rtol=1e-6)
    plain = Model(tiny_served.folder, replace(tiny_served.manifest, noise_levels=None))
    assert plain.noise_level(3) == {}


def test_start_points_are_those_that_the_trainer_chose(
    tiny_served: Model, tiny_chains: ChainSetup
) -> None:
    points = tiny_served.start_points()
    assert points.shape == (7, 8) and points.dtype == np.float32
    np.testing.assert_array_equal(points, tiny_chains.starts.numpy())


@pytest.mark.parametrize("name", [WEIGHTS, "gibbs.onnx", "card.md"])
def test_a_changed_byte_is_refused(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ArtefactError, match=f"{name} was altered"):
        Model.open(copy)


def test_a_missing_file_is_refused(copy: Path) -> None:
    (copy / "moments.onnx").unlink()
    with pytest.raises(ArtefactError, match=r"moments\.onnx cannot be read"):
        Model.open(copy)


@pytest.mark.parametrize("border", ["inputs", "outputs"])
@pytest.mark.parametrize("wrong", ["size", "name", "dynamic"])
def test_a_graph_with_another_border_than_promised_is_refused(
    copy: Path, border: str, wrong: str
) -> None:
    def change(body: dict[str, Any]) -> None:
        shapes = body["graphs"]["gibbs"][border]
        first = next(iter(shapes))
        if wrong == "size":
            shapes[first][1] += 1
        elif wrong == "dynamic":
            shapes[first][0] = 4
        else:
            shapes["other"] = shapes.pop(first)

    rewrite(copy, change)
    model = Model.open(copy, threads=1)
    assert model.session("reconstruct")  # the others go on
    with pytest.raises(ArtefactError, match=r"gibbs\.onnx takes or gives"):
        model.session("gibbs")


def test_a_graph_that_is_no_graph_is_refused(copy: Path) -> None:
    (copy / "gibbs.onnx").write_bytes(b"not a graph")
    rewrite(copy, lambda body: None)
    with pytest.raises(ArtefactError, match=r"gibbs\.onnx does not load"):
        Model.open(copy).session("gibbs")


def test_weights_that_are_too_short_are_refused(copy: Path) -> None:
    (copy / WEIGHTS).write_bytes((copy / WEIGHTS).read_bytes()[:200])
    rewrite(copy, lambda body: None)
    with pytest.raises(ArtefactError, match="does not load"):
        Model.open(copy).session("gibbs")
    with pytest.raises(ArtefactError, match="start points"):
        Model.open(copy).start_points()


@pytest.mark.parametrize(
    "tensors",
    [
        {"other": np.zeros((2, 8), np.float32)},
        {START_POINTS: np.zeros((2, 7), np.float32)},
        {START_POINTS: np.zeros((0, 8), np.float32)},
        {START_POINTS: np.zeros(8, np.float32)},
    ],
)
def test_start_points_that_do_not_fit_are_refused(copy: Path, tensors: dict[str, Any]) -> None:
    save_file(tensors, copy / WEIGHTS)
    rewrite(copy, lambda body: None)
    with pytest.raises(ArtefactError, match="start points"):
        Model.open(copy).start_points()
