# mypy: ignore-errors
"""Ray Serve with @serve.batch, as in its guide to dynamic request batching; one replica."""

import signal
import threading

import numpy as np
import ray
from graph import MAX_BATCH, NPY, PORT, WAIT_SECONDS, Graph, read_npy, write_npy
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=4 * MAX_BATCH)
class Reconstruct:
    def __init__(self):
        self.graph = Graph()

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=WAIT_SECONDS)
    async def reconstruct(self, blocks):
        return self.graph.run_blocks(blocks)

    async def __call__(self, request: Request):
        if request.headers.get("content-type") == NPY:
            y = await self.reconstruct(read_npy(await request.body()))
            return Response(write_npy(y), media_type=NPY)
        x = np.asarray((await request.json())["x"], np.float32)
        return {"reconstruction": (await self.reconstruct(x)).tolist()}


if __name__ == "__main__":
    stop = threading.Event()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    serve.run(Reconstruct.bind(), route_prefix="/")
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    serve.shutdown()
    ray.shutdown()
