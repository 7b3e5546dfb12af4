"""One command from a file to a model that the service's engine can run."""

import csv
import hashlib
import json

import numpy as np
import pytest

from localmoments.artefact import MANIFEST
from localmoments.model import Model
from trainer.data import DataOptions, load, split

GRAPHS = {"reconstruct", "encode", "decode", "jacobian", "encoder_jacobian", "moments"}
KERNELS = {"hidden", "input", "moment", "gibbs", "walkjump"}


@pytest.fixture(scope="module")
def model(fitted):
    return Model.open(fitted.artefact, threads=1)


@pytest.fixture(scope="module")
def data(fitted):
    return np.loadtxt(fitted.folder / "table.csv", delimiter=",", skiprows=1)


class TestATableWithoutARecipe:
    def test_is_named_after_the_file_and_knows_its_columns(self, model):
        m = model.manifest
        assert m.reference == "table@1" and m.kind == "dae" and m.image is None
        assert m.features == ("height", "width", "depth") and m.input_dims == 3
        assert m.covariance_scale == "absolute" and m.default_kernel == "gibbs"
        assert set(m.kernels) == KERNELS and set(m.graphs) >= GRAPHS | KERNELS

    def test_is_standardised_by_its_training_rows(self, fitted, model, data):
        options = DataOptions(str(fitted.folder / "table.csv"))
        train = data[split(load(options), options).train]
        np.testing.assert_allclose(model.manifest.normaliser.shift, train.mean(0), rtol=1e-6)
        np.testing.assert_allclose(model.manifest.normaliser.scale, train.std(0), rtol=1e-3)

    def test_runs_every_graph_on_the_engine(self, model):
        for name, graph in model.manifest.graphs.items():
            inputs = {
                k: np.ones([s if isinstance(s, int) else 2 for s in shape], np.float32)
                for k, shape in graph.inputs.items()
            }
            for output in model.run(name, **inputs).values():
                assert np.isfinite(output).all(), name

    def test_has_start_points_that_are_not_rows_of_the_data(self, model, data):
        points = model.manifest.normaliser.to_user(model.start_points())
        assert points.shape == (9, 3)
        scale = model.manifest.normaliser.scale
        nearest = np.abs((points[:, None] - data[None]) / scale).max(-1).min(1)
        assert (nearest > 1e-5).all()

    def test_lists_the_sha256_of_every_file(self, fitted, model):
        found = {p.name: p for p in fitted.artefact.iterdir() if p.name != MANIFEST}
        assert model.manifest.files == {
            name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()
        }

    def test_keeps_plots_in_the_run_and_in_the_artefact(self, fitted):
        plots = {path.name for path in fitted.artefact.glob("*.png")}
        # There are no samples if the chains of so short a training diverge.
        assert plots - {"samples.png"} == {"reconstructions.png", "tangents.png", "losses.png"}
        for name in plots:
            picture = (fitted.run / name).read_bytes()
            assert picture.startswith(b"\x89PNG")
            assert (fitted.artefact / name).read_bytes() == picture
            assert f"({name})" in (fitted.artefact / "card.md").read_text()

    def test_writes_the_loss_curves_as_a_table(self, fitted, saved):
        with (fitted.run / "losses.csv").open() as file:
            lines = list(csv.DictReader(file))
        state, _ = saved(fitted.run)
        assert [(int(x["step"]), float(x["train"]), float(x["valid"])) for x in lines] == [
            (loss.step, loss.train, loss.valid) for loss in state.losses
        ]
        assert int(lines[-1]["step"]) == 4 * 9

    def test_records_recipe_data_libraries_and_metrics(self, fitted, model):
        m = model.manifest
        assert m.recipe == json.loads((fitted.run / "recipe.json").read_text())
        assert m.data["rows"] == 600
        assert m.data["training_rows"] + m.data["held_out_rows"] == 600
        assert (
            m.data["fingerprint"] == load(DataOptions(str(fitted.folder / "table.csv"))).fingerprint
        )
        assert {"python", "numpy", "torch", "onnx", "safetensors", "localmoments"} <= set(
            m.libraries
        )
        assert 0 < m.evaluation["reconstruction"] < 2 and m.evaluation["rows"] == 60
        assert set(m.evaluation["sliced Wasserstein"]) == {"training rows", *KERNELS}

    def test_prints_the_folders_and_the_progress(self, fitted):
        first, progress, *_, last = fitted.stderr.splitlines()
        assert first == "Training table on 540 rows with 3 columns; the run is in runs/table/1."
        assert last == "models/table/1 is ready; models/table/1/card.md describes it."
        assert progress.startswith("fit table: 100 %, ")
        assert "rows/s, loss " in progress and progress.endswith(" left")

    def test_can_be_trained_again_from_its_own_folder(self, fitted, train, saved):
        again = train(fitted.folder, str(fitted.artefact))
        assert again.name == "2" and saved(again) == saved(fitted.run)


def blobs(count=150):
    """8×8 grey images of one bright spot each."""
    rng = np.random.default_rng(0)
    at = rng.uniform(2, 6, (count, 2, 1, 1))
    i, j = np.mgrid[:8, :8]
    return (255 * np.exp(-((i - at[:, 0]) ** 2 + (j - at[:, 1]) ** 2) / 4)).astype(np.uint8)


@pytest.mark.slow
def test_images_get_a_sigmoid_decoder_filters_and_on_request_real_start_points(
    typed, tmp_path, verified, tiny
):
    np.savez_compressed(tmp_path / "blobs.npz", images=blobs())
    code, _, err = typed("fit", "blobs.npz", *tiny, "--set", "sampling.starts=data")
    assert code == 0, err
    folder = tmp_path / "models/blobs/1"
    m = verified(folder)
    assert m.image == (8, 8) and m.input_dims == 64 and m.default_emit == "mean"
    assert np.all(m.normaliser.shift == 0) and np.all(m.normaliser.scale == 255)
    model = Model.open(folder, threads=1)
    far = 50 * np.random.default_rng(1).standard_normal((40, 64)).astype(np.float32)
    r = model.run("reconstruct", x=far, **model.noise_level(40))["mean"]
    assert r.min() >= 0 and r.max() <= 1 + 1e-6, "a sigmoid cannot leave [0, 1]"
    starts = np.rint(m.normaliser.to_user(model.start_points())).astype(np.uint8)
    rows = {row.tobytes() for row in blobs()}
    assert len(starts) == 9 and all(point.tobytes() in rows for point in starts)
    for name in ("samples", "reconstructions", "tangents", "losses", "filters"):
        picture = (tmp_path / f"runs/blobs/1/{name}.png").read_bytes()
        assert (folder / f"{name}.png").read_bytes() == picture and picture.startswith(b"\x89PNG")


def test_data_describes_a_file_and_writes_nothing(typed, table, tmp_path):
    table(tmp_path / "table.csv")
    code, out, err = typed("data", "table.csv")
    assert (code, err) == (0, "")
    for word in ("table.csv", "600", "height", "width", "depth"):
        assert word in out
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]
