"""Loops in this process, without a server: upper limits for what a server can reach."""

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
from serving.roster import Array
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import make_kernels

SEED = 7


def make_reconstruct(artefact: Path, threads: int) -> Callable[[Array], Array]:
    """Return r(x) in the user's units, computed by onnxruntime."""
    model = Model.open(artefact, threads=threads)
    units = model.manifest.normaliser

    def reconstruct(x: Array) -> Array:
        z = units.to_model(x.astype(np.float64))
        return np.asarray(
            units.to_user(model.run("reconstruct", x=z, **model.noise_level(len(z)))["mean"])
        )

    return reconstruct


class OnnxLoop:
    """Steps of the default kernel at a fixed batch, by onnxruntime."""

    def __init__(self, artefact: Path, threads: int, batch: int) -> None:
        model = Model.open(artefact, threads=threads)
        self.kernel = model.manifest.kernels[model.manifest.default_kernel]
        self.session = model.session(self.kernel.graph)
        starts = model.start_points()
        self.state: Any = starts[np.arange(batch) % len(starts)]
        self.scale = np.full((batch, 1), self.kernel.scale, np.float32)
        self.batch, self.steps = batch, 0

    def step(self) -> None:
        noise = normals(SEED, self.steps, (self.batch, self.kernel.noise))
        feed = {"state": self.state, "noise": noise, "scale": self.scale}
        self.state, _ = self.session.run(["next", "mean"], feed)
        self.steps += 1


class TorchLoop:
    """The same steps in eager PyTorch, without gradients."""

    def __init__(self, artefact: Path, threads: int, batch: int) -> None:
        model = Model.open(artefact, threads=threads)
        m = model.manifest
        torch.set_num_threads(threads)
        options = m.recipe["sampling"]
        kernels = make_kernels(
            load_autoencoder(artefact, model), m.sigma, options["root"], options["root_degree"]
        )
        self.module = kernels[m.default_kernel].eval()
        starts = torch.tensor(model.start_points())
        self.state = starts[torch.arange(batch) % len(starts)]
        self.noise = m.kernels[m.default_kernel].noise
        self.scale = torch.full((batch, 1), m.kernels[m.default_kernel].scale)
        self.batch, self.steps = batch, 0

    def step(self) -> None:
        noise = torch.from_numpy(normals(SEED, self.steps, (self.batch, self.noise)))
        with torch.inference_mode():
            self.state, _ = self.module(self.state, noise, self.scale)
        self.steps += 1


def load_autoencoder(artefact: Path, model: Model) -> AutoEncoder:
    """Load the artefact's weights into the trainer's PyTorch module."""
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


def measure_steps(loop: OnnxLoop | TorchLoop, seconds: float) -> float:
    """Return row-steps per second, after a warm-up."""
    _run_for(loop, seconds / 5)
    start, steps = time.perf_counter(), loop.steps
    _run_for(loop, seconds)
    return (loop.steps - steps) * loop.batch / (time.perf_counter() - start)


def _run_for(loop: OnnxLoop | TorchLoop, seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        loop.step()
