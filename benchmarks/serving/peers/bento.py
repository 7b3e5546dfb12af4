# mypy: ignore-errors
"""BentoML with adaptive batching along the rows; it chooses its batching timeout itself.

It accepts tensors as JSON only, so a block of rows is sent as a file, its type for binary data. A
block is a full batch, and files are not batched.
"""

from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import ContentType, DType, Shape
from graph import MAX_BATCH, Graph

Rows = Annotated[np.ndarray, DType("float32"), Shape((-1, 784))]
File = Annotated[Path, ContentType("application/octet-stream")]


@bentoml.service(workers=1, traffic={"timeout": 60}, logging={"access": {"enabled": False}})
class Reconstruct:
    def __init__(self) -> None:
        self.graph = Graph()

    @bentoml.api(batchable=True, batch_dim=0, max_batch_size=MAX_BATCH, max_latency_ms=1000)
    def reconstruct(self, x: Rows) -> Rows:
        return self.graph(x)

    @bentoml.api
    def block(self, npy: File, /, context: bentoml.Context) -> File:
        y = self.graph(np.load(npy, allow_pickle=False))
        out = Path(context.temp_dir) / "y.npy"
        np.save(out, y)
        return out
