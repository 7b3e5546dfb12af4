"""NVIDIA's tritonclient, synchronous and asynchronous, against a real server."""

import asyncio
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

triton = pytest.importorskip("tritonclient.http", reason="tritonclient is in the test extra")
aio = pytest.importorskip("tritonclient.http.aio", reason="tritonclient is in the test extra")

ROOT = Path(__file__).parents[2]
NPY = "application/x-npy"


@pytest.fixture
def client(service: Any) -> Iterator[Any]:
    host, port = service.address
    with triton.InferenceServerClient(f"{host}:{port}", concurrency=4) as client:
        yield client


@pytest.fixture
def rows(x: Any) -> Any:
    return x.astype(np.float64)


def make_input(array: Any, name: str = "x", binary: bool = True) -> Any:
    datatype = {"f2": "FP16", "f4": "FP32", "f8": "FP64", "u1": "UINT8", "b1": "BOOL"}[
        array.dtype.str[1:]
    ]
    infer_input = triton.InferInput(name, array.shape, datatype)
    return infer_input.set_data_from_numpy(array, binary_data=binary)


def reconstruct_npy(http: httpx.Client, x: Any) -> Any:
    stream = io.BytesIO()
    np.save(stream, x)
    headers = {"content-type": NPY, "accept": NPY}
    return np.load(
        io.BytesIO(http.post("/reconstruct", content=stream.getvalue(), headers=headers).content)
    )


def test_health_metadata_and_index(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("gaussian") and client.is_model_ready("gaussian:gibbs", "1")
    assert not client.is_model_ready("other") and not client.is_model_ready("gaussian", "7")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("gaussian")["inputs"][0]["shape"] == [-1, 4]
    names = {entry["name"] for entry in client.get_model_repository_index()}
    assert {"gaussian", "gaussian:moments"} <= names


@pytest.mark.parametrize("binary", [True, False])
def test_infer_accepts_and_returns_what_metadata_describes(
    client: Any, http: httpx.Client, rows: Any, binary: bool
) -> None:
    metadata = client.get_model_metadata("gaussian")
    dtype = {"FP32": np.float32, "FP64": np.float64}[metadata["inputs"][0]["datatype"]]
    x = rows.astype(dtype)
    all_outputs = [
        triton.InferRequestedOutput(output["name"], binary_data=binary)
        for output in metadata["outputs"]
    ]
    for outputs in (None, all_outputs):
        result = client.infer(
            "gaussian", [make_input(x, binary=binary)], outputs=outputs, request_id="7"
        )
        rows_out = result.as_numpy("reconstruction")
        assert rows_out.tobytes() == reconstruct_npy(http, x).tobytes() and rows_out.dtype == dtype
        assert result.get_response()["id"] == "7" and result.as_numpy("error").shape == (9,)


def test_reconstruction_equals_the_closed_form(client: Any, rows: Any, truth: Any) -> None:
    actual = client.infer("gaussian", [make_input(rows)]).as_numpy("reconstruction")
    np.testing.assert_allclose(actual, truth.r(rows), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_requests_may_be_compressed(client: Any, rows: Any, algorithm: str) -> None:
    plain = client.infer("gaussian", [make_input(rows)]).as_numpy("reconstruction")
    compressed = client.infer(
        "gaussian",
        [make_input(rows)],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert np.array_equal(plain, compressed.as_numpy("reconstruction"))


def test_concurrent_requests_get_their_own_responses(client: Any, rows: Any) -> None:
    expected = client.infer("gaussian", [make_input(rows)]).as_numpy("reconstruction")
    pending = [client.async_infer("gaussian", [make_input(rows[i : i + 1])]) for i in range(9)]
    actual = [request.get_result().as_numpy("reconstruction")[0] for request in pending]
    assert np.array_equal(actual, expected)


def test_a_graph_takes_inputs_in_the_models_units(client: Any, rows: Any, truth: Any) -> None:
    """The moments graph returns A v, and A of this model is known."""
    z = truth.units.to_model(rows)
    v = np.broadcast_to(np.eye(4, dtype="f4"), (9, 4, 4)).copy()
    result = client.infer(
        "gaussian:moments", [make_input(z), make_input(v, "v")], model_version="1"
    )
    np.testing.assert_allclose(result.as_numpy("products"), np.tile(truth.A, (9, 1, 1)), atol=1e-5)


BAD: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "unknown model": ("404", "'other'",
                      lambda c, x: c.infer("other", [make_input(x)])),
    "unknown version": ("404", "'gaussian@9'",
                        lambda c, x: c.infer("gaussian", [make_input(x)], model_version="9")),
    "unknown graph": ("404", "no graph 'other'",
                      lambda c, x: c.get_model_metadata("gaussian:other")),
    "wrong shape": ("422", r"shape \[9, 3\]; expected \[batch, 4\]",
                    lambda c, x: c.infer("gaussian", [make_input(x[:, :3].copy())])),
    "wrong datatype": ("422", "datatype 'BOOL'",
                       lambda c, x: c.infer("gaussian", [make_input(x > 0)])),
    "wrong name": ("422", "no input 'y'; it has x",
                   lambda c, x: c.infer("gaussian", [make_input(x, "y")])),
    "a sequence": ("422", "sequence_id",
                   lambda c, x: c.infer("gaussian", [make_input(x)], sequence_id=9)),
    "far from the data": ("422", "too far",
                          lambda c, x: c.infer("gaussian", [make_input(x * 1e30)])),
    "too large": ("413", "100000 bytes",
                  lambda c, x: c.infer("gaussian", [make_input(np.zeros((4096, 4)))])),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_the_client_shows_the_reason_of_an_error(client: Any, rows: Any, case: str) -> None:
    status, words, call = BAD[case]
    with pytest.raises(triton.InferenceServerException, match=words) as error:
        call(client, rows)
    assert error.value.status() == status
    assert client.is_server_live()


def test_the_asynchronous_client_gets_the_same_rows(service: Any, rows: Any) -> None:
    host, port = service.address

    async def call_server() -> None:
        async with aio.InferenceServerClient(f"{host}:{port}") as client:
            assert await client.is_server_ready() and await client.is_model_ready("gaussian")
            assert await client.get_model_repository_index()
            results = await asyncio.gather(*[
                client.infer("gaussian", [make_input(rows[i : i + 1], binary=i % 2 == 0)])
                for i in range(9)
            ])  # fmt: skip
            batch = (await client.infer("gaussian", [make_input(rows)])).as_numpy("reconstruction")
            assert np.array_equal([r.as_numpy("reconstruction")[0] for r in results], batch)
            compressed = await client.infer(
                "gaussian", [make_input(rows)], request_compression_algorithm="gzip"
            )
            assert np.array_equal(compressed.as_numpy("reconstruction"), batch)

    asyncio.run(call_server())


def test_the_example_in_the_documentation_runs(start: Any) -> None:
    page = ROOT / "docs" / "inference-protocol.md"
    code = "".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
    host, port = start(ROOT / "models").address
    names: dict[str, Any] = {}
    exec(code.replace("localhost:8000", f"{host}:{port}"), names)
    names["client"].close()
    assert names["denoised"].shape == (3, 64)
