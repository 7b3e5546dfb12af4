"""Asks with KServe's own client and prints what it found; run by an interpreter that has it.

python kserve_client.py URL MODEL    with rows as JSON on the standard input
"""

import asyncio
import json
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig


def request(x: Any, binary: bool, **parameters: Any) -> InferRequest:
    tensor = InferInput("x", list(x.shape), "FP64")
    tensor.set_data_from_numpy(x, binary_data=binary)
    said = {"binary_data_output": binary, **parameters}
    return InferRequest(model_name="any", request_id="42", infer_inputs=[tensor], parameters=said)


async def main(url: str, model: str, x: Any) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    found: dict[str, Any] = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model": await client.is_model_ready(url, model),
        "other": await client.is_model_ready(url, "other"),
    }
    for binary in (True, False):
        answer = await client.infer(url, request(x, binary), model_name=model)
        [rows] = [o for o in answer.outputs if o.name == "reconstruction"]
        found["binary" if binary else "json"] = rows.as_numpy().tolist()
        found["answer"] = [answer.id, answer.model_name]
    try:
        await client.infer(url, request(x[:, :1], True), model_name=model)
    except httpx.HTTPStatusError as error:
        found["refusal"] = [error.response.status_code, error.response.json()["error"]]
    chain = {
        "inputs": [],
        "parameters": {"sequence_id": "kserve", "steps": 3, "seed": 1, "thin": 1},
    }
    for word in ("sequence_start", "sequence_end"):
        chain["parameters"] |= {"sequence_start": False, word: True}
        answer = await client.infer(url, chain, model_name=f"{model}:chain")
        found[word] = answer.outputs[0].as_numpy().tolist()
    await client.close()
    return found


if __name__ == "__main__":
    rows = np.array(json.load(sys.stdin))
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], rows))))
