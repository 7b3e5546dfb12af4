"""POST /sample: throughput of many chains and of many walkers, and time to the first sample.

The limit is a loop of onnxruntime in this process at the same batch and with the same number of
threads. It draws one block of noise per step and keeps no samples. With `--previous`, the service
of another checkout is measured in turn with this one.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

import orjson
from measure import Figure, divide

from serving import load
from serving.baselines import OnnxLoop, TorchLoop, measure_steps
from serving.load import Stream, build_request
from serving.roster import Setup
from serving.servers import PeerError, Server

NDJSON, NPY, JSON = "application/x-ndjson", "application/x-npy", "application/json"
MANY_STEPS = 1_000_000  # more than any measurement lasts; the client disconnects before the end
CHAINS, THINS = 64, (10, 1)
WALKERS, WALKER_THIN = 256, 10
FORMATS = (  # label, format, streamed
    ("complete, .npy", NPY, False),
    ("streamed, .npy", NPY, True),
    ("complete, JSON", JSON, False),
    ("streamed, NDJSON", NDJSON, True),
)
TRIES, PAUSE = 30, 0.05
OVERHEAD_MS = 5.0
OURS, PREVIOUS = "this service", "previous version"
PREVIOUS_RATIO = 0.95


def build_sample_request(accept: str, **body: Any) -> bytes:
    """Return the bytes of a POST /sample."""
    content = orjson.dumps(body)
    return build_request("POST", "/sample", content, content_type=JSON, accept=accept)


@contextlib.contextmanager
def _start_versions(setup: Setup) -> Iterator[dict[str, Server]]:
    """Start this service and, if there is one, the previous version."""
    with contextlib.ExitStack() as stack:
        servers = {OURS: stack.enter_context(setup.start())}
        if setup.previous is not None:
            servers[PREVIOUS] = stack.enter_context(setup.start(checkout=setup.previous))
        yield servers


def measure_chains(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """64 streamed chains of one walker, against a loop in process at batch 64."""
    for threads in sorted({1, setup.threads}):
        loop = OnnxLoop(setup.artefact, threads, CHAINS)
        with _start_versions(replace(setup, threads=threads)) as servers:
            for thin in THINS:
                label = f"thin {thin}, {threads} thread{'s' * (threads > 1)}"
                yield from _compare_chains(servers, loop, thin, label, rounds, seconds)
        torch = TorchLoop(setup.artefact, threads, CHAINS)
        rates = tuple(measure_steps(torch, seconds) for _ in range(rounds))
        yield Figure(f"PyTorch in process, batch {CHAINS}, {threads} threads", "steps/s", rates)


def _compare_chains(
    servers: dict[str, Server], loop: OnnxLoop, thin: int, label: str, rounds: int, seconds: float
) -> Iterator[Figure]:
    limit: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in servers}
    for i in range(rounds):
        limit.append(measure_steps(loop, seconds))
        for name, server in list(servers.items())[:: 1 if i % 2 == 0 else -1]:
            rates[name].append(measure_stream_rate(server, CHAINS, thin, seconds, seconds / 2))
    target = 0.8 if thin == THINS[0] else None
    yield Figure(f"onnxruntime in process, batch {CHAINS} ({label})", "steps/s", tuple(limit))
    ratio = divide(rates[OURS], limit)
    yield Figure(f"{CHAINS} chains, {label}", "steps/s", tuple(rates[OURS]))
    yield Figure(f"{CHAINS} chains, {label} / in process", "×", ratio, target)
    yield from _compare_with_previous(f"{CHAINS} chains, {label}", rates)


def _compare_with_previous(label: str, rates: dict[str, list[float]]) -> Iterator[Figure]:
    if PREVIOUS in rates:
        yield Figure(f"{label}, previous version", "steps/s", tuple(rates[PREVIOUS]))
        ratio = divide(rates[OURS], rates[PREVIOUS])
        yield Figure(f"{label} / previous version", "×", ratio, PREVIOUS_RATIO)


def measure_stream_rate(
    server: Server, chains: int, thin: int, seconds: float, warm_up: float
) -> float:
    """Return row-steps per second of single-walker chains that are all streamed at once."""

    async def wait(streams: list[Stream]) -> float:
        await asyncio.sleep(warm_up)
        start = perf_counter()
        await asyncio.sleep(seconds)
        return sum(_compute_rate(stream, start, thin) for stream in streams)

    requests = [
        build_sample_request(NDJSON, walkers=1, steps=MANY_STEPS, thin=thin, seed=i)
        for i in range(chains)
    ]
    rate, streams = load.run(load.read_streams(server.address, requests, wait))
    ended = [stream for stream in streams if stream.ended is not None]
    if ended:
        raise PeerError(f"/sample ended early with {ended[0].status}: {ended[0].tail!r}")
    return rate


def _compute_rate(stream: Stream, start: float, thin: int) -> float:
    """Steps per second between the first and the last line after `start`.

    Chains advance together, so lines within a fixed time would be off by up to one per chain.
    """
    arrivals = [(when, lines) for when, lines in stream.arrivals if when >= start]
    if len(arrivals) < 2:
        return 0.0
    (t0, n0), (t1, n1) = arrivals[0], arrivals[-1]
    return (n1 - n0) * thin / (t1 - t0)


def measure_walkers(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """One chain of 256 walkers in each format, against a loop in process at batch 256."""
    loop = OnnxLoop(setup.artefact, setup.threads, WALKERS)
    limit: list[float] = []
    with _start_versions(setup) as servers:
        rates: dict[str, dict[str, list[float]]] = {
            label: {name: [] for name in servers} for label, _, _ in FORMATS
        }
        for i in range(rounds):
            limit.append(measure_steps(loop, seconds))
            steps = max(1, round(seconds * limit[0] / WALKERS / WALKER_THIN)) * WALKER_THIN
            order = 1 if i % 2 == 0 else -1
            for label, accept, streamed in FORMATS[::order]:
                for name, server in list(servers.items())[::order]:
                    rates[label][name].append(_measure_walkers(server, accept, streamed, steps))
    yield Figure(f"onnxruntime in process, batch {WALKERS}", "steps/s", tuple(limit))
    for label, versions in rates.items():
        target = 0.9 if label.endswith(".npy") else None
        name = f"1 chain of {WALKERS} walkers, {label}"
        yield Figure(name, "steps/s", tuple(versions[OURS]))
        yield Figure(f"{name} / in process", "×", divide(versions[OURS], limit), target)
        yield from _compare_with_previous(name, versions)
    for label, complete, streamed_label in (
        (".npy", FORMATS[0][0], FORMATS[1][0]),
        ("JSON", FORMATS[2][0], FORMATS[3][0]),
    ):
        ratio = divide(rates[complete][OURS], rates[streamed_label][OURS])
        yield Figure(f"time streamed / complete, {label}", "×", ratio, at_most=1.1)


def _measure_walkers(server: Server, accept: str, streamed: bool, steps: int) -> float:
    """Return row-steps per second, from the first byte of the request to the last received."""
    data = build_sample_request(
        accept, walkers=WALKERS, steps=steps, thin=WALKER_THIN, seed=1, stream=streamed
    )
    seconds, stream = load.run(load.time_request(server.address, data))
    if stream.status != 200:
        raise PeerError(f"/sample returned {stream.status}: {stream.tail!r}")
    return WALKERS * steps / seconds


def measure_first_sample(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """Time from a request to the first streamed sample, on an idle server; a median per round."""
    with setup.start() as server:
        for walkers in (1, 64):
            loop = OnnxLoop(setup.artefact, setup.threads, walkers)
            waits, steps = [], []
            for _ in range(rounds):
                steps.append(1e3 * walkers / measure_steps(loop, seconds / 2))
                waits.append(statistics.median(_time_first(server, walkers) for _ in range(TRIES)))
            yield Figure(f"first sample, {walkers} walkers", "ms", tuple(waits))
            yield Figure(f"one step in process, batch {walkers}", "ms", tuple(steps))
            extra = tuple((w - OVERHEAD_MS) / s for w, s in zip(waits, steps, strict=True))
            name = f"first sample minus {OVERHEAD_MS:g} ms, {walkers} walkers"
            yield Figure(name, "steps", extra, at_most=2.0)


def _time_first(server: Server, walkers: int) -> float:
    """Return the time to the first sample in ms."""
    time.sleep(PAUSE)
    data = build_sample_request(NDJSON, walkers=walkers, steps=5, thin=1)

    async def wait(streams: list[Stream]) -> float:
        start = perf_counter()
        while streams[0].ended is None:
            await asyncio.sleep(0.002)
        return ((streams[0].first_sample or float("nan")) - start) * 1e3

    return load.run(load.read_streams(server.address, [data], wait))[0]
