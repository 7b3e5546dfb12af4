# mypy: ignore-errors
"""The graph that every peer runs: rows in the user's units to r(x) in the same units.

Artefact, number of threads and largest batch come from the environment, the same for all peers.
"""

import io
import json
import os
from pathlib import Path

import numpy as np
import onnxruntime as ort

PORT = int(os.environ.get("BENCH_PORT", "0"))
MAX_BATCH = int(os.environ.get("BENCH_MAX_BATCH", "64"))
WAIT_SECONDS = float(os.environ.get("BENCH_WAIT_SECONDS", "0.002"))
NPY = "application/x-npy"


class Graph:
    """r(x) by onnxruntime on the CPU."""

    def __init__(self):
        folder = Path(os.environ["BENCH_ARTEFACT"])
        manifest = json.loads((folder / "manifest.json").read_text())
        units = manifest["normaliser"]
        self.shift = np.asarray(units["shift"], np.float32)
        self.scale = np.asarray(units["scale"], np.float32)
        self.sigma = manifest["sigma"] if manifest["noise_levels"] else None
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("BENCH_THREADS", "1"))
        path = str(folder / "reconstruct.onnx")
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def __call__(self, x):  # (B, d) -> (B, d)
        feed = {"x": ((x - self.shift) / self.scale).astype(np.float32)}
        if self.sigma is not None:
            feed["sigma"] = np.full((len(x), 1), self.sigma, np.float32)
        return self.session.run(None, feed)[0] * self.scale + self.shift

    def run_blocks(self, blocks):
        """Run the rows of several callers in one pass and return the rows of each."""
        y = self(np.concatenate(blocks))
        return np.split(y, np.cumsum([len(block) for block in blocks])[:-1])


def read_npy(body):
    return np.load(io.BytesIO(body), allow_pickle=False)


def write_npy(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()
