"""What the machine can do at all: onnxruntime and PyTorch over r(x), in process, nothing around.

No server can give more rows a second than the last line, which has every core for computing.
"""

import os
from collections.abc import Callable, Iterator

import numpy as np
import torch
from interleave import Figure, seconds

from localmoments.model import Model
from serving.bare import autoencoder
from serving.calls import Array
from serving.roster import Setup

BATCHES = (1, 64)


def figures(setup: Setup, rounds: int, window: float) -> Iterator[Figure]:
    cores = os.cpu_count() or 1
    for threads in sorted({setup.threads, cores}):
        for batch in BATCHES:
            run, words = onnx(setup, threads, batch), f"batch {batch}, {threads} threads"
            yield Figure(f"onnxruntime, {words}", "rows/s", rates(run, batch, rounds, window))
        run = eager(setup, threads, BATCHES[-1])
        yield Figure(f"PyTorch, {words}", "rows/s", rates(run, BATCHES[-1], rounds, window))


def onnx(setup: Setup, threads: int, batch: int) -> Callable[[], object]:
    model = Model.open(setup.artefact, threads=threads)
    session = model.session("reconstruct")
    feed = {"x": points(model, batch), **model.noise_level(batch)}
    return lambda: session.run(["mean"], feed)


def eager(setup: Setup, threads: int, batch: int) -> Callable[[], object]:
    model = Model.open(setup.artefact)
    ae, level = autoencoder(setup.artefact, model), model.noise_level(batch)
    x = torch.from_numpy(points(model, batch))
    sigma = torch.from_numpy(level["sigma"]) if level else None

    def run() -> object:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return ae(x, sigma)

    return run


def points(model: Model, batch: int) -> Array:
    starts = model.start_points()
    return starts[np.arange(batch) % len(starts)]


def rates(
    run: Callable[[], object], batch: int, rounds: int, window: float
) -> tuple[float, ...]:  # fmt: skip
    times = max(3, int(window / 2 / seconds(run, 3)))
    return tuple(batch / seconds(run, times) for _ in range(rounds))
