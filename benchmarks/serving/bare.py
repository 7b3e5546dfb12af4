"""In-process limits: onnxruntime and PyTorch over the same step, with nothing around them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from localmoments.artefact import START_POINTS, WEIGHTS
from localmoments.model import Model
from localmoments.noise import normals
from serving.calls import Array
from trainer.autoencoder import Architecture, AutoEncoder

SEED = 7


def reconstruct(artefact: Path, threads: int) -> Callable[[Array], Array]:
    """r(x) in the user's units, by onnxruntime."""
    model = Model.open(artefact, threads=threads)
    units = model.manifest.normaliser

    def run(x: Array) -> Array:
        z = units.to_model(x.astype(np.float64))
        return np.asarray(
            units.to_user(model.run("reconstruct", x=z, **model.noise_level(len(z)))["mean"])
        )

    return run


class OnnxLoop:
    """x, noise -> x' again and again: the default kernel's graph at a fixed batch."""

    def __init__(self, artefact: Path, threads: int, batch: int) -> None:
        model = Model.open(artefact, threads=threads)
        self.kernel = model.manifest.kernels[model.manifest.default_kernel]
        self.session = model.session(self.kernel.graph)
        starts = model.start_points()
        self.state: Any = starts[np.arange(batch) % len(starts)]
        self.scale = np.full((batch, 1), self.kernel.scale, np.float32)
        self.batch, self.at = batch, 0

    def step(self) -> None:
        noise = normals(SEED, self.at, (self.batch, self.kernel.noise))
        feed = {"state": self.state, "noise": noise, "scale": self.scale}
        self.state, _ = self.session.run(["next", "mean"], feed)
        self.at += 1


class TorchLoop:
    """The same step in PyTorch, eager and without gradients."""

    def __init__(self, artefact: Path, threads: int, batch: int) -> None:
        model = Model.open(artefact, threads=threads)
        m = model.manifest
        torch.set_num_threads(threads)
        self.module = kernel_module(artefact, model)
        starts = torch.from_numpy(model.start_points())
        self.state = starts[torch.arange(batch) % len(starts)]
        self.noise = m.kernels[m.default_kernel].noise
        self.scale = torch.full((batch, 1), m.kernels[m.default_kernel].scale)
        self.batch, self.at = batch, 0

    def step(self) -> None:
        noise = torch.from_numpy(normals(SEED, self.at, (self.batch, self.noise)))
        with torch.inference_mode():
            self.state, _ = self.module(self.state, noise, self.scale)
        self.at += 1


def kernel_module(artefact: Path, model: Model) -> Any:
    from trainer.kernels import make_kernels

    m = model.manifest
    options = m.recipe["sampling"]
    kernels = make_kernels(
        autoencoder(artefact, model), m.sigma, options["root"], options["root_degree"]
    )
    return kernels[m.default_kernel].eval()


def autoencoder(artefact: Path, model: Model) -> AutoEncoder:
    """The artefact's weights in the trainer's own module."""
    m, r = model.manifest, model.manifest.recipe["model"]
    weights = load_file(artefact / WEIGHTS)
    weights.pop(START_POINTS)
    decoder = r["decoder"] if r["decoder"] != "auto" else "sigmoid"
    ae = AutoEncoder(
        Architecture(m.input_dims, tuple(r["hidden"]), r["unit"], decoder, r["tied"], r["blocks"],
                     r["conditioned"])
    )  # fmt: skip
    ae.load_state_dict(weights)
    return ae.eval()


def steps_per_second(loop: OnnxLoop | TorchLoop, seconds: float) -> float:
    """Row-steps a second, after a warm-up."""
    _for(loop, seconds / 5)
    began, at = time.perf_counter(), loop.at
    _for(loop, seconds)
    return (loop.at - at) * loop.batch / (time.perf_counter() - began)


def _for(loop: OnnxLoop | TorchLoop, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        loop.step()
