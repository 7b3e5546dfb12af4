"""What the Open Inference Protocol costs beside our own `.npy` route: the same rows, both ways.

    python benchmarks/inference.py [--rounds 9] [--calls 400] [--models FOLDER]

One connection asks POST /reconstruct and POST /v2/models/.../infer in turn, call by call, with the
bytes that NumPy and tritonclient send; a round's figure is the median time of each. Both answers
must hold the same bits before any time counts. Writes benchmarks/results/inference.json.
"""

import argparse
import io
import json
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # for `service` and `trainer`

import numpy as np
from interleave import Figure, ratios
from machine import machine
from report import table
from serving import artefacts
from serving.roster import pixels
from serving.servers import our_service
from serving.wire import END, LENGTH, request

Array = np.ndarray[Any, np.dtype[Any]]

RESULTS = Path(__file__).parent / "results"
SHIPPED = Path(__file__).resolve().parents[1] / "models" / "digits-dae"
NPY = "application/x-npy"
ROWS = (1, 64)
WARM = 100
AT_MOST = 1.2


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="lm-bench-models-") as made:
        models = args.models or _models(Path(made))
        figures = [
            figure
            for artefact in sorted(models.glob("*/[0-9]*"))
            for figure in measured(models, artefact, args.rounds, args.calls)
        ]
    print(table(figures))
    body = {"figures": [figure.as_dict() for figure in figures], "machine": machine()}
    (RESULTS / "inference.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare /v2 infer with the .npy route.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=400, help="of each kind in a round")
    parser.add_argument("--models", type=Path, help="left out: digits-dae, and one that is made")
    return parser.parse_args()


def _models(folder: Path) -> Path:
    """A shipped one of 64 columns, whose graph is soon done, and a deep one of 784."""
    (folder / SHIPPED.name).symlink_to(SHIPPED)
    artefacts.deep(folder)
    return folder


def measured(models: Path, artefact: Path, rounds: int, calls: int) -> Iterator[Figure]:
    name = artefact.parent.name
    with our_service(models, threads=1, default_model=name) as server:
        for rows in ROWS:
            x = pixels(artefact, rows)
            with Client(server.address) as client:
                ours, theirs = _npy(x), _binary(name, x)
                check(client, ours, theirs, x.shape)
                times = [client.in_turns(ours, theirs, calls) for _ in range(rounds)]
            npy, infer = (tuple(1000 * t[i] for t in times) for i in (0, 1))
            what = f"{name}, {rows} row{'s' * (rows > 1)}"
            yield Figure(f"{what}: POST /reconstruct as .npy, p50", "ms", npy)
            yield Figure(f"{what}: /v2 infer with bytes, p50", "ms", infer)
            yield Figure(f"{what}: infer / .npy", "x", ratios(infer, npy), at_most=AT_MOST)


def _npy(x: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x)
    return request("POST", "/reconstruct", stream.getvalue(), content_type=NPY, accept=NPY)


def _binary(model: str, x: Array) -> bytes:
    """As tritonclient sends it when no outputs are named."""
    tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32",
              "parameters": {"binary_data_size": x.nbytes}}  # fmt: skip
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(asked).encode()
    path = f"/v2/models/{model}/infer"
    length = str(len(head))
    return request("POST", path, head + x.tobytes(), inference_header_content_length=length)


def check(client: "Client", ours: bytes, theirs: bytes, shape: Sequence[int]) -> None:
    expected = np.load(io.BytesIO(client.call(ours)))
    body = client.call(theirs)
    head, _ = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    first = head["outputs"][0]
    assert first["name"] == "reconstruction" and first["shape"] == list(shape)
    size = first["parameters"]["binary_data_size"]
    start = len(body) - sum(o["parameters"]["binary_data_size"] for o in head["outputs"])
    found = np.frombuffer(body[start : start + size], expected.dtype).reshape(shape)
    assert np.array_equal(found, expected), "infer gave other bits than the .npy route"


class Client:
    """One keep-alive connection; a call is a write and as many reads as it takes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def call(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        answer = b""
        while (end := answer.find(END)) < 0:
            answer += self._socket.recv(2**20)
        length = LENGTH.search(answer[: end + 2])
        assert answer.startswith(b"HTTP/1.1 200") and length, answer[:500]
        body = bytearray(answer[end + 4 :])
        while len(body) < int(length[1]):
            body += self._socket.recv(2**20)
        return bytes(body)

    def in_turns(self, first: bytes, second: bytes, calls: int) -> tuple[float, float]:
        """The median time of each, in seconds."""
        times: tuple[list[float], list[float]] = ([], [])
        for i in range(-WARM, calls):
            for which, data in enumerate((first, second)):
                began = perf_counter()
                self.call(data)
                if i >= 0:
                    times[which].append(perf_counter() - began)
        return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    main()
