"""Call a server with KServe's REST client and print the results as JSON.

python kserve_client.py URL MODEL < rows.json

test_kserve.py runs this script with an interpreter that has the kserve package.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig


def make_request(x: Any, binary: bool) -> InferRequest:
    tensor = InferInput("x", list(x.shape), "FP64")
    tensor.set_data_from_numpy(x, binary_data=binary)
    return InferRequest(
        model_name="any",
        request_id="42",
        infer_inputs=[tensor],
        parameters={"binary_data_output": binary},
    )


async def call_server(url: str, model: str, x: Any) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
    results: dict[str, Any] = {
        "server_live": await client.is_server_live(url),
        "server_ready": await client.is_server_ready(url),
        "model_ready": await client.is_model_ready(url, model),
        "unknown_model_ready": await client.is_model_ready(url, "other"),
    }
    for binary in (True, False):
        response = await client.infer(url, make_request(x, binary), model_name=model)
        [rows] = [o for o in response.outputs if o.name == "reconstruction"]
        results["binary" if binary else "json"] = rows.as_numpy().tolist()
        results["id_and_model"] = [response.id, response.model_name]
    try:
        await client.infer(url, make_request(x[:, :1], True), model_name=model)
    except httpx.HTTPStatusError as error:
        results["refusal"] = [error.response.status_code, error.response.json()["error"]]
    await client.close()
    return results


if __name__ == "__main__":
    rows = np.array(json.load(sys.stdin))
    print(json.dumps(asyncio.run(call_server(sys.argv[1], sys.argv[2], rows))))
