"""One thread that computes while the event loop serves; onnxruntime releases the GIL.

Calls take their turns in the order in which they came.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import numpy as np

from service.core.errors import UnusableAnswerError
from service.core.types import Floats
from service.engine.model import Arrays, Model

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """The thread, and the one way to run a graph."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")

    async def run(self, model: Model, graph: str, **inputs: Floats) -> Arrays:
        """One pass of a graph; its outputs are finite."""
        return await self.call(_run, model, graph, inputs)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *args, **kwargs))

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


def _run(model: Model, graph: str, inputs: Arrays) -> Arrays:
    outputs = model.run(graph, **inputs)
    if not all(np.isfinite(array).all() for array in outputs.values()):
        raise UnusableAnswerError(f"{model.manifest.reference} gave NaN or infinity.")
    return outputs
