"""tritonclient as people install it, in both its kinds, against a server of its own process."""

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
FEW = {"walkers": 3, "steps": 5, "thin": 1, "seed": 8}


@pytest.fixture
def client(service: Any) -> Iterator[Any]:
    host, port = service.address
    with triton.InferenceServerClient(f"{host}:{port}", concurrency=4) as client:
        yield client


@pytest.fixture
def rows(x: Any) -> Any:
    return x.astype(np.float64)


def tensor(array: Any, name: str = "x", binary: bool = True) -> Any:
    kind = {"f2": "FP16", "f4": "FP32", "f8": "FP64", "u1": "UINT8", "b1": "BOOL"}[
        array.dtype.str[1:]
    ]
    made = triton.InferInput(name, array.shape, kind)
    return made.set_data_from_numpy(array, binary_data=binary)


def by_npy(http: httpx.Client, x: Any) -> Any:
    stream = io.BytesIO()
    np.save(stream, x)
    headers = {"content-type": NPY, "accept": NPY}
    return np.load(
        io.BytesIO(http.post("/reconstruct", content=stream.getvalue(), headers=headers).content)
    )


def test_the_server_and_its_models_are_told_of(client: Any) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("gaussian") and client.is_model_ready("gaussian:gibbs", "1")
    assert not client.is_model_ready("other") and not client.is_model_ready("gaussian", "7")
    assert "sequence(string_id)" in client.get_server_metadata()["extensions"]
    metadata, config = client.get_model_metadata("gaussian"), client.get_model_config("gaussian")
    assert metadata["inputs"][0]["shape"] == [-1, 4] and config["input"][0]["dims"] == [4]
    assert config["input"][0]["data_type"] == f"TYPE_{metadata['inputs'][0]['datatype']}"
    names = {entry["name"] for entry in client.get_model_repository_index()}
    assert {"gaussian", "gaussian:moments", "gaussian:chain"} <= names


@pytest.mark.parametrize("binary", [True, False])
def test_what_metadata_says_can_be_sent_and_comes_back(
    client: Any, http: httpx.Client, rows: Any, binary: bool
) -> None:
    said = client.get_model_metadata("gaussian")
    dtype = {"FP32": np.float32, "FP64": np.float64}[said["inputs"][0]["datatype"]]
    x = rows.astype(dtype)
    outputs = [triton.InferRequestedOutput(o["name"], binary_data=binary) for o in said["outputs"]]
    for asked in (None, outputs):
        result = client.infer("gaussian", [tensor(x, binary=binary)], outputs=asked, request_id="7")
        found = result.as_numpy("reconstruction")
        assert found.tobytes() == by_npy(http, x).tobytes() and found.dtype == dtype
        assert result.get_response()["id"] == "7" and result.as_numpy("error").shape == (9,)


def test_the_bits_are_those_of_the_closed_form(client: Any, rows: Any, truth: Any) -> None:
    found = client.infer("gaussian", [tensor(rows)]).as_numpy("reconstruction")
    np.testing.assert_allclose(found, truth.r(rows), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_requests_may_be_compressed(client: Any, rows: Any, packing: str) -> None:
    plain = client.infer("gaussian", [tensor(rows)]).as_numpy("reconstruction")
    how = {"request_compression_algorithm": packing, "response_compression_algorithm": packing}
    packed = client.infer("gaussian", [tensor(rows)], **how).as_numpy("reconstruction")
    assert np.array_equal(plain, packed)


def test_many_requests_at_once_are_not_mixed_up(client: Any, rows: Any) -> None:
    alone = client.infer("gaussian", [tensor(rows)]).as_numpy("reconstruction")
    waiting = [client.async_infer("gaussian", [tensor(rows[i : i + 1])]) for i in range(9)]
    found = [each.get_result().as_numpy("reconstruction")[0] for each in waiting]
    assert np.array_equal(found, alone)


def test_a_graph_takes_the_models_units(client: Any, rows: Any, truth: Any) -> None:
    """The products of the moments graph are A v, with A known."""
    z = truth.units.to_model(rows)
    v = np.broadcast_to(np.eye(4, dtype="f4"), (9, 4, 4)).copy()
    result = client.infer("gaussian:moments", [tensor(z), tensor(v, "v")], model_version="1")
    np.testing.assert_allclose(result.as_numpy("products"), np.tile(truth.A, (9, 1, 1)), atol=1e-5)


def walked(client: Any, number: int | str, **how: Any) -> Any:
    return client.infer("gaussian:chain", [], sequence_id=number, **how).as_numpy("samples")


@pytest.mark.parametrize("number", [4711, "my-chain"])
def test_a_sequence_is_a_chain(client: Any, http: httpx.Client, number: int | str) -> None:
    first = walked(client, number, sequence_start=True, parameters=FEW)
    second = walked(client, number, parameters={"steps": 5})
    last = walked(client, number, sequence_end=True, parameters={"steps": 5})
    whole = http.post("/sample", json={**FEW, "steps": 15}).json()["samples"]
    assert np.array_equal(np.concatenate([first, second, last]), np.array(whole, first.dtype))
    with pytest.raises(triton.InferenceServerException, match="was ended") as refusal:
        walked(client, number)
    assert refusal.value.status() == "410"


BAD: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "unknown model": ("404", "no model 'other'; there are gaussian",
                      lambda c, x: c.infer("other", [tensor(x)])),
    "unknown version": ("404", "'gaussian@9'",
                        lambda c, x: c.infer("gaussian", [tensor(x)], model_version="9")),
    "unknown graph": ("404", "nothing called 'other'",
                      lambda c, x: c.get_model_metadata("gaussian:other")),
    "wrong shape": ("422", r"x has shape \[9, 3\], but \[batch, 4\]",
                    lambda c, x: c.infer("gaussian", [tensor(x[:, :3].copy())])),
    "wrong datatype": ("422", "datatype 'BOOL', but numbers",
                       lambda c, x: c.infer("gaussian", [tensor(x > 0)])),
    "wrong name": ("422", "no input 'y'; there is x",
                   lambda c, x: c.infer("gaussian", [tensor(x, "y")])),
    "unknown sequence": ("404", "no chain of sequence 99", lambda c, x: walked(c, 99)),
    "no sequence": ("422", "sequence_id other than 0", lambda c, x: walked(c, 0)),
    "too far": ("422", "too far", lambda c, x: c.infer("gaussian", [tensor(x * 1e30)])),
    "too large": ("413", "larger than 100000 bytes",
                  lambda c, x: c.infer("gaussian", [tensor(np.zeros((4096, 4)))])),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_errors_reach_the_caller_as_sentences(client: Any, rows: Any, case: str) -> None:
    status, words, call = BAD[case]
    with pytest.raises(triton.InferenceServerException, match=words) as refusal:
        call(client, rows)
    assert refusal.value.status() == status
    assert client.is_server_live()


def test_the_asynchronous_client_does_the_same(service: Any, rows: Any) -> None:
    host, port = service.address

    async def asked() -> None:
        async with aio.InferenceServerClient(f"{host}:{port}") as client:
            assert await client.is_server_ready() and await client.is_model_ready("gaussian")
            assert (await client.get_model_config("gaussian:chain"))["max_batch_size"] == 0
            assert await client.get_model_repository_index()
            results = await asyncio.gather(*[
                client.infer("gaussian", [tensor(rows[i : i + 1], binary=i % 2 == 0)])
                for i in range(9)
            ])  # fmt: skip
            whole = (await client.infer("gaussian", [tensor(rows)])).as_numpy("reconstruction")
            assert np.array_equal([r.as_numpy("reconstruction")[0] for r in results], whole)
            packed = await client.infer(
                "gaussian", [tensor(rows)], request_compression_algorithm="gzip"
            )
            assert np.array_equal(packed.as_numpy("reconstruction"), whole)
            said = {"sequence_id": "aio", "parameters": FEW}
            first = await client.infer("gaussian:chain", [], sequence_start=True, **said)
            last = await client.infer("gaussian:chain", [], sequence_end=True, **said)
            assert first.as_numpy("samples").shape == last.as_numpy("samples").shape == (5, 3, 4)
            with pytest.raises(triton.InferenceServerException, match="was ended"):
                await client.infer("gaussian:chain", [], **said)

    asyncio.run(asked())


def test_the_examples_of_the_documentation_run(start: Any) -> None:
    page = ROOT / "docs" / "inference-protocol.md"
    code = "".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
    host, port = start(ROOT / "models").address
    found: dict[str, Any] = {}
    exec(code.replace("localhost:8000", f"{host}:{port}"), found)
    found["client"].close()
    assert found["denoised"].shape == (3, 64) and found["samples"].shape == (6, 8, 64)
