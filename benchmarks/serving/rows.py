"""POST /reconstruct on all servers: one row of JSON from 32 clients, and blocks of 64 rows.

Each server is started, its results are compared with those of onnxruntime, it is put under load,
and stopped. A round goes over all servers, so that they share what else happens on the machine.
Ratios are computed within a round. This service takes part twice: as it starts by default, and as
it is deployed (API keys on, `X-Forwarded-For` set).
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from measure import Figure, divide, time_call

from localmoments.model import Model
from serving import load
from serving.baselines import load_autoencoder, make_reconstruct
from serving.load import ClosedLoop
from serving.roster import (
    DEPLOYED,
    LIMIT,
    OURS,
    PREVIOUS,
    Array,
    Call,
    Participant,
    Setup,
    draw_pixels,
    make_rows_call,
)
from serving.servers import PEERS, PeerError, Server, find_free_port, start_server

CLIENTS, BLOCK_CLIENTS, BLOCK = 32, 8, 64
BATCHES = (1, BLOCK)
RATIOS: tuple[tuple[str, str, str, float | None, float | None], ...] = (
    ("one row, requests/s", "one", "requests_per_s", 2.0, None),
    ("one row, p99", "one", "p99_ms", None, 1.0),
    (f"{BLOCK} rows, rows/s", "block", "rows_per_s", None, None),
    (f"{BLOCK} rows, p99", "block", "p99_ms", None, None),
)
BETTER = {"requests_per_s": max, "rows_per_s": max, "p99_ms": min}

Round = dict[str, dict[str, float]]  # figures by case
Results = dict[str, list[Round] | str]  # rounds by server, or why it was not measured


def compare_servers(
    setup: Setup, participants: Sequence[Participant], rounds: int, seconds: float
) -> dict[str, Any]:
    """Measure all servers; return their figures with spread, and the ratios between them."""
    results: Results = {each.name: [] for each in participants}
    for i in range(rounds):
        first = i % len(participants)
        for each in [*participants[first:], *participants[:first]]:
            measured = results[each.name]
            if isinstance(measured, str):
                continue
            try:
                measured.append(measure_server(setup, each, seconds))
                print(f"round {i + 1}: {each.label}: {_summarise(measured[-1])}", flush=True)
            except (PeerError, OSError) as error:
                results[each.name] = str(error)
                print(f"{each.label} is left out: {error}", flush=True)
    servers = {each.name: _describe(each, results[each.name]) for each in participants}
    return {"servers": servers, "figures": [f.to_dict() for f in _compute_ratios(results)]}


def measure_server(setup: Setup, participant: Participant, seconds: float) -> Round:
    """Start a server, measure both cases and stop it."""
    x = draw_pixels(setup.artefact, BLOCK)
    row, block = participant.make_calls(x)
    expected = make_reconstruct(setup.artefact, setup.threads)(x)
    with participant.start(setup) as server:
        check_result(server, row, expected[:1])
        check_result(server, block, expected)
        cpu = server.measure_cpu()
        one = load.run(ClosedLoop(server.address, row.data).run(CLIENTS, seconds, seconds / 3))
        cpu = server.measure_cpu() - cpu
        many = load.run(
            ClosedLoop(server.address, block.data).run(BLOCK_CLIENTS, seconds, seconds / 3)
        )
        idle, memory = _measure_idle_cores(server), server.measure_memory()
    usage = {"cores": cpu / (seconds * 4 / 3), "idle_cores": idle, "rss_mb": memory / 1e6}
    return {"one": one.summarise() | usage, "block": many.summarise(BLOCK)}


def check_result(server: Server, call: Call, expected: Array) -> None:
    """Raise PeerError unless the server returns the expected rows; wait while it still loads."""
    status, body = load.run(_fetch_when_ready(server, call))
    if status != 200:
        raise PeerError(f"{server.name} returned {status}: {body[:200]!r}")
    actual = call.read(body)
    if actual.shape != expected.shape or not np.allclose(actual, expected, atol=0.02):
        raise PeerError(f"{server.name} returned other rows than onnxruntime.")


async def _fetch_when_ready(server: Server, call: Call, tries: int = 100) -> tuple[int, bytes]:
    status, body = await load.fetch(server.address, call.data)
    for _ in range(tries):
        if status == 200:
            break
        await asyncio.sleep(0.2)
        status, body = await load.fetch(server.address, call.data)
    return status, body


def _measure_idle_cores(server: Server, seconds: float = 1.0) -> float:
    """CPU time per second without any request."""
    time.sleep(seconds / 2)
    before = server.measure_cpu()
    time.sleep(seconds)
    return (server.measure_cpu() - before) / seconds


def _summarise(figures: Round) -> str:
    one, block = figures["one"], figures["block"]
    return (f"{one['requests_per_s']:.0f} requests/s, p99 {one['p99_ms']:.1f} ms; "
            f"blocks {block['rows_per_s']:.0f} rows/s, p99 {block['p99_ms']:.1f} ms; "
            f"{one['errors'] + block['errors']:.0f} errors")  # fmt: skip


def _describe(participant: Participant, rounds: list[Round] | str) -> dict[str, Any]:
    if isinstance(rounds, str):
        return {"label": participant.label, "unavailable": rounds}
    cases = {
        case: {name: _compute_spread([each[case][name] for each in rounds]) for name in figures}
        for case, figures in rounds[0].items()
    }
    return {"label": participant.label, "cases": cases}


def _compute_spread(values: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values),
            "rounds": values}  # fmt: skip


def _compute_ratios(results: Results) -> Iterator[Figure]:
    """Compare this service with the best peer of each round, and its configurations."""
    there = {name: rounds for name, rounds in results.items() if not isinstance(rounds, str)}
    peers = [name for name in there if name not in (OURS, DEPLOYED, PREVIOUS, LIMIT)]
    for ours, suffix in ((OURS, ""), (DEPLOYED, ", API keys and proxy headers")):
        if ours not in there:
            continue
        for label, case, metric, at_least, at_most in RATIOS:
            values = _select(there, ours, case, metric)
            if peers:
                best = _find_best(there, peers, case, metric)
                ratio = divide(values, best)
                yield Figure(f"{label}{suffix} / best peer", "×", ratio, at_least, at_most)
            if LIMIT in there and metric == "requests_per_s":
                ratio = divide(values, _select(there, LIMIT, case, metric))
                yield Figure(f"{label}{suffix} / bare ASGI loop", "×", ratio)
    for a, b, label, at_least in (
        (DEPLOYED, OURS, "API keys and proxy headers / default configuration", 0.9),
        (OURS, PREVIOUS, "this version / previous version", None),
    ):
        if a in there and b in there:
            for words, case, metric, _, _ in RATIOS:
                if not metric.endswith("ms"):
                    ratio = divide(*(_select(there, name, case, metric) for name in (a, b)))
                    yield Figure(f"{words}, {label}", "×", ratio, at_least)


def _select(there: dict[str, list[Round]], name: str, case: str, metric: str) -> list[float]:
    return [each[case][metric] for each in there[name]]


def _find_best(
    there: dict[str, list[Round]], peers: list[str], case: str, metric: str
) -> list[float]:
    rounds = zip(*(_select(there, peer, case, metric) for peer in peers), strict=True)
    return [BETTER[metric](values) for values in rounds]


def measure_generator(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """The load generator against a server that returns fixed bytes: its own limit."""
    data = make_rows_call("/reconstruct", draw_pixels(setup.artefact, 1)).data
    port = find_free_port()
    command = [sys.executable, str(PEERS / "trivial.py"), str(port), str(len(data))]
    with start_server("trivial", command, {}, port) as server:
        tallies = [
            load.run(ClosedLoop(server.address, data).run(CLIENTS, seconds, seconds / 3))
            for _ in range(rounds)
        ]
    values = tuple(tally.rate() for tally in tallies)
    yield Figure("load generator against a server with a fixed response", "requests/s", values)


def measure_limits(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """r(x) in this process by onnxruntime and PyTorch: no server can be faster."""
    for threads in sorted({setup.threads, os.cpu_count() or 1}):
        for batch in BATCHES:
            name = f"onnxruntime, batch {batch}, {threads} threads"
            rates = _measure_rates(_make_onnx(setup, threads, batch), batch, rounds, seconds)
            yield Figure(name, "rows/s", rates)
        name = f"PyTorch, batch {BLOCK}, {threads} threads"
        rates = _measure_rates(_make_torch(setup, threads, BLOCK), BLOCK, rounds, seconds)
        yield Figure(name, "rows/s", rates)


def _make_onnx(setup: Setup, threads: int, batch: int) -> Callable[[], object]:
    model = Model.open(setup.artefact, threads=threads)
    session = model.session("reconstruct")
    feed = {"x": _repeat_starts(model, batch), **model.noise_level(batch)}
    return lambda: session.run(["mean"], feed)


def _make_torch(setup: Setup, threads: int, batch: int) -> Callable[[], object]:
    model = Model.open(setup.artefact)
    ae, level = load_autoencoder(setup.artefact, model), model.noise_level(batch)
    x = torch.from_numpy(_repeat_starts(model, batch))
    sigma = torch.from_numpy(level["sigma"]) if level else None

    def reconstruct() -> object:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return ae(x, sigma)

    return reconstruct


def _repeat_starts(model: Model, batch: int) -> Array:
    starts = model.start_points()
    return starts[np.arange(batch) % len(starts)]


def _measure_rates(
    reconstruct: Callable[[], object], batch: int, rounds: int, seconds: float
) -> tuple[float, ...]:
    repeats = max(3, int(seconds / 2 / time_call(reconstruct, 3)))
    return tuple(batch / time_call(reconstruct, repeats) for _ in range(rounds))
