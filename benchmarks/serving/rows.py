"""POST /reconstruct: one row of JSON from 32 clients, and blocks of 64 rows; all servers.

Each server is started, checked against the same expected rows, put under load and stopped; the
rounds go over all servers in turn, so that whatever else the machine does falls on all alike.
"""

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from serving import load
from serving.bare import reconstruct
from serving.calls import Array, Call
from serving.roster import Contestant, Setup, pixels
from serving.servers import Running
from serving.venvs import PeerError

CLIENTS, BLOCK_CLIENTS, BLOCK = 32, 8, 64
Round = dict[str, dict[str, float]]  # case -> figures


def rounds(
    setup: Setup, contestants: Sequence[Contestant], count: int, seconds: float
) -> dict[str, list[Round] | str]:
    """What every server gave in every round, or why it took no part."""
    found: dict[str, list[Round] | str] = {each.name: [] for each in contestants}
    for i in range(count):
        turn = i % len(contestants)
        for each in [*contestants[turn:], *contestants[:turn]]:
            done = found[each.name]
            if isinstance(done, str):
                continue
            try:
                done.append(measured(setup, each, seconds))
                print(f"round {i + 1}: {each.label}: {_words(done[-1])}", flush=True)
            except (PeerError, OSError) as error:
                found[each.name] = str(error)
                print(f"{each.label} takes no part: {error}", flush=True)
    return found


def measured(setup: Setup, contestant: Contestant, seconds: float) -> Round:
    """Both cases on one server, from its start to its stop."""
    x = pixels(setup.artefact, BLOCK)
    one = contestant.one(contestant.one_path, x[:1])
    block = contestant.block(contestant.block_path, x)
    expected = reconstruct(setup.artefact, setup.threads)(x)
    with contestant.start(setup) as server:
        check(server, one, expected[:1])
        check(server, block, expected)
        before = server.cpu_seconds()
        first = load.run(load.closed(server.address, one.data, CLIENTS, seconds, seconds / 3))
        spent = server.cpu_seconds() - before
        second = load.run(
            load.closed(server.address, block.data, BLOCK_CLIENTS, seconds, seconds / 3)
        )
        idle, rss = _idle_cores(server), server.rss()
    extra = {"cores": spent / (seconds * 4 / 3), "idle_cores": idle, "rss_mb": rss / 1e6}
    return {"one": first.figures() | extra, "block": second.figures(BLOCK)}


def _idle_cores(server: Running, seconds: float = 1.0) -> float:
    """What it burns while nobody asks."""
    time.sleep(seconds / 2)
    before = server.cpu_seconds()
    time.sleep(seconds)
    return (server.cpu_seconds() - before) / seconds


def check(server: Running, call: Call, expected: Array) -> None:
    """It must compute what all others do, before its speed counts; it may still be loading."""
    status, body = load.run(_first_good(server, call))
    if status != 200:
        raise PeerError(f"{server.name} answered {status}: {body[:200]!r}")
    found = call.read(body)
    if found.shape != expected.shape or not np.allclose(found, expected, atol=0.02):
        raise PeerError(f"{server.name} gave other rows than onnxruntime did.")


async def _first_good(server: Running, call: Call, tries: int = 100) -> tuple[int, bytes]:
    status, body = await load.fetch(server.address, call.data)
    for _ in range(tries):
        if status == 200:
            break
        await asyncio.sleep(0.2)
        status, body = await load.fetch(server.address, call.data)
    return status, body


def _words(found: Round) -> str:
    one, block = found["one"], found["block"]
    return (f"{one['requests_per_s']:.0f} requests/s, p99 {one['p99_ms']:.1f} ms; "
            f"blocks {block['rows_per_s']:.0f} rows/s, p99 {block['p99_ms']:.1f} ms; "
            f"{one['errors'] + block['errors']:.0f} errors")  # fmt: skip
