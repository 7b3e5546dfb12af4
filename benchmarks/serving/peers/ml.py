# mypy: ignore-errors
"""An MLServer runtime: tensors of the Open Inference Protocol, with the server's adaptive batching.

It has no binary tensors over REST, so a block is sent as base64 (its `base64` content type).
"""

import base64

import numpy as np
from graph import Graph, read_npy, write_npy
from mlserver import MLModel
from mlserver.codecs import Base64Codec, NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, Parameters, ResponseOutput


class Reconstruct(MLModel):
    async def load(self) -> bool:
        self.graph = Graph()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        tensor = payload.inputs[0]
        if tensor.name == "npy":
            blocks = [read_npy(body) for body in Base64Codec.decode_input(tensor)]
            output = encode_blocks(self.graph.run_blocks(blocks))
        else:
            x = NumpyCodec.decode_input(tensor).astype(np.float32)
            output = NumpyCodec.encode_output("reconstruction", self.graph(x))
        return InferenceResponse(model_name=self.name, outputs=[output])


def encode_blocks(blocks):
    data = [base64.b64encode(write_npy(y)).decode() for y in blocks]
    kind = Parameters(content_type="base64")
    return ResponseOutput(
        name="npy", shape=[len(data), 1], datatype="BYTES", data=data, parameters=kind
    )
