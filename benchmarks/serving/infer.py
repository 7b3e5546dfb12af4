"""The Open Inference Protocol against POST /reconstruct as `.npy`: the same rows over both routes.

One connection calls both routes in turn, with the bytes that tritonclient and NumPy send. The
results must be equal bit for bit before anything is measured. A round is the median of many calls.
"""

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from measure import Figure, divide

from serving.load import BlockingClient, build_request
from serving.roster import Array, Setup, draw_pixels, make_npy_call, read_npy
from serving.servers import ROOT, start_service

SHIPPED = ROOT / "models" / "digits-dae"
ROWS = (1, 64)
WARM_UP = 100  # calls


def compare_infer_with_npy(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """Latency of both routes for a small model (64 columns) and a deep one (784 columns)."""
    calls = int(80 * seconds)
    with tempfile.TemporaryDirectory(prefix="lm-bench-infer-") as folder:
        models = Path(folder)
        for source in (SHIPPED, setup.artefact.parent):
            (models / source.name).symlink_to(source.absolute())
        for artefact in (next(SHIPPED.glob("[0-9]*")), setup.artefact):
            yield from _compare_model(models, artefact, rounds, calls)


def _compare_model(models: Path, artefact: Path, rounds: int, calls: int) -> Iterator[Figure]:
    name = artefact.parent.name
    with start_service(models, threads=1, default_model=name) as server:
        for rows in ROWS:
            x = draw_pixels(artefact, rows)
            npy, infer = make_npy_call("/reconstruct", x).data, _build_infer_request(name, x)
            with BlockingClient(server.address) as client:
                _check_equal(client, npy, infer)
                times = [_time_in_turn(client, npy, infer, calls) for _ in range(rounds)]
            npy_ms, infer_ms = (tuple(1e3 * t[i] for t in times) for i in (0, 1))
            label = f"{name}, {rows} row{'s' * (rows > 1)}"
            yield Figure(f"{label}: POST /reconstruct as .npy, p50", "ms", npy_ms)
            yield Figure(f"{label}: infer with binary tensors, p50", "ms", infer_ms)
            ratio = divide(infer_ms, npy_ms)
            yield Figure(f"{label}: infer / .npy", "×", ratio, at_most=1.2)


def _build_infer_request(model: str, x: Array) -> bytes:
    """Return what tritonclient sends if no outputs are named."""
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32",
              "parameters": {"binary_data_size": x.nbytes}}  # fmt: skip
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return build_request(
        "POST",
        f"/v2/models/{model}/infer",
        header + x.tobytes(),
        inference_header_content_length=str(len(header)),
    )


def _check_equal(client: BlockingClient, npy: bytes, infer: bytes) -> None:
    expected, body = read_npy(client.call(npy)), client.call(infer)
    header, _ = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    output = header["outputs"][0]
    start = len(body) - sum(o["parameters"]["binary_data_size"] for o in header["outputs"])
    size = output["parameters"]["binary_data_size"]
    actual = np.frombuffer(body[start : start + size], expected.dtype).reshape(output["shape"])
    if output["name"] != "reconstruction" or not np.array_equal(actual, expected):
        raise RuntimeError("infer returned other bits than POST /reconstruct")


def _time_in_turn(
    client: BlockingClient, npy: bytes, infer: bytes, calls: int
) -> tuple[float, float]:
    """Return the median time of each request in seconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(-WARM_UP, calls):
        for which, data in enumerate((npy, infer)):
            start = perf_counter()
            client.call(data)
            if i >= 0:
                times[which].append(perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])
