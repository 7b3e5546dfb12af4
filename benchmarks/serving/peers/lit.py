# mypy: ignore-errors
"""LitServe with batching: decode, batch, predict, unbatch and encode, as in its guide.

It reads JSON or forms only, so a block is sent as base64 in JSON, as in its example with images.
The response is raw bytes. The ZeroMQ queue (`fast_queue`) is its option for high throughput.
"""

import base64

import litserve as ls
import numpy as np
from fastapi import Response
from graph import MAX_BATCH, NPY, PORT, WAIT_SECONDS, Graph, read_npy, write_npy


class Reconstruct(ls.LitAPI):
    def setup(self, device):
        self.graph = Graph()

    def decode_request(self, request):
        if "npy" in request:
            return "npy", read_npy(base64.b64decode(request["npy"]))
        return "json", np.asarray(request["x"], np.float32)

    def batch(self, inputs):
        return inputs

    def predict(self, inputs):
        ys = self.graph.run_blocks([x for _, x in inputs])
        return [(kind, y) for (kind, _), y in zip(inputs, ys, strict=True)]

    def unbatch(self, outputs):
        return outputs

    def encode_response(self, output):
        kind, y = output
        if kind == "npy":
            return Response(write_npy(y), media_type=NPY)
        return {"reconstruction": y.tolist()}


if __name__ == "__main__":
    api = Reconstruct(max_batch_size=MAX_BATCH, batch_timeout=WAIT_SECONDS)
    server = ls.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(
        host="127.0.0.1", port=PORT, num_api_servers=1, log_level="warning",
        generate_client_file=False,
    )  # fmt: skip
