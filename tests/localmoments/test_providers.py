"""The choice of a provider, what happens if it does not work, and runs through a binding."""

import logging
from pathlib import Path

import numpy as np
import pytest

from localmoments.errors import ArtefactError, SettingsError
from localmoments.model import Model
from localmoments.providers import (
    CPU,
    CUDA,
    Choice,
    Device,
    choose_device,
    open_session,
    run_on_device,
)
from service.engine.repository import ModelRepository

PLAIN, WITH_CUDA = ["AzureExecutionProvider", CPU], ["TensorrtExecutionProvider", CUDA, CPU]


@pytest.mark.parametrize(
    ("asked", "available", "expected"),
    [
        ("auto", PLAIN, Device(CPU)),
        ("cpu", PLAIN, Device(CPU)),
        ("auto", WITH_CUDA, Device(CUDA, only=False)),
        ("cpu", WITH_CUDA, Device(CPU)),
        ("cuda", WITH_CUDA, Device(CUDA, only=True)),
    ],
)
def test_the_device_follows_the_word_and_what_is_there(
    asked: Choice, available: list[str], expected: Device
) -> None:
    assert choose_device(asked, available) == expected


def test_cuda_that_is_asked_for_and_absent_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(SettingsError, match=r"built without CUDA: install the extra 'gpu'"):
        choose_device("cuda", PLAIN)
    with pytest.raises(SettingsError, match="LOCALMOMENTS_PROVIDER"):
        ModelRepository(Path("models"), provider="cuda")  # this machine has none


@pytest.mark.parametrize("graph", ["reconstruct", "moments", "gibbs"])
def test_a_bound_run_gives_the_same_bits(tiny_served: Model, graph: str) -> None:
    entry, rng = tiny_served.manifest.graphs[graph], np.random.default_rng(0)
    sizes = {"batch": 5, "probes": 3}
    inputs = {
        name: np.abs(rng.standard_normal([sizes.get(str(s), s) for s in shape])).astype(np.float32)
        for name, shape in entry.inputs.items()
    }
    inputs["sigma" if "sigma" in inputs else "scale"] += 0.1
    strided = {name: np.repeat(array, 2, axis=-1)[..., ::2] for name, array in inputs.items()}
    plain = tiny_served.run(graph, **inputs)
    session, names = tiny_served.session(graph), list(entry.outputs)
    for given in (inputs, strided):
        bound = run_on_device(session, names, given, "cpu")
        assert all(np.array_equal(plain[name], b) for name, b in zip(names, bound, strict=True))


@pytest.mark.filterwarnings("ignore:Specified provider 'CUDAExecutionProvider'")
def test_what_fails_to_open_on_cuda_runs_on_the_cpu_and_is_said_under_auto(
    tiny_artefact: Path, tiny_served: Model, caplog: pytest.LogCaptureFixture
) -> None:
    model = Model.open(tiny_artefact, threads=1, device=Device(CUDA, only=False))
    assert model.provider == CUDA
    with caplog.at_level(logging.WARNING):
        model.check("reconstruct", "moments")
    assert model.provider == CPU
    assert [r.levelname for r in caplog.records] == ["WARNING"]  # once a model
    assert "CUDAExecutionProvider does not work here" in caplog.text
    x = np.ones((3, 8), np.float32)
    level = model.noise_level(3)
    expected = tiny_served.run("reconstruct", x=x, **level)["mean"]
    assert np.array_equal(model.run("reconstruct", x=x, **level)["mean"], expected)


@pytest.mark.filterwarnings("ignore:Specified provider 'CUDAExecutionProvider'")
def test_what_fails_to_open_on_cuda_is_refused_where_only_cuda_will_do(tiny_artefact: Path) -> None:
    model = Model.open(tiny_artefact, threads=1, device=Device(CUDA, only=True))
    with pytest.raises(ArtefactError, match="CUDAExecutionProvider does not work here"):
        model.check("reconstruct")


def test_a_file_that_is_no_graph_opens_on_no_device(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"not a graph")
    for device in (Device(CPU), Device(CUDA, only=False)):
        with pytest.raises(Exception, match=r"a\.onnx"):
            open_session(tmp_path / "a.onnx", 1, device)
