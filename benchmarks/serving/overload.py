"""Three times more than the service can do: who is taken is served in time, who is not, hears so.

Capacity is the closed loop's rate with 32 clients. Unloaded means arrivals at half of it; both
runs are open loops, so that waiting for a free connection would count.
"""

from collections.abc import Iterator

import numpy as np
from interleave import Figure, ratios

from serving import calls, load
from serving.load import Arrivals, Tally
from serving.roster import Setup, pixels
from serving.rows import CLIENTS
from serving.servers import Running

CONNECTIONS = 1024
FACTOR, EASY = 3.0, 0.5


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    data = calls.rows("/reconstruct", pixels(setup.artefact, 1)).data
    with setup.service() as server:
        found = [_once(server, data, seconds) for _ in range(rounds)]
    for name, unit, at_most in (
        ("capacity, 32 clients", "requests/s", None),
        ("p99 with 32 clients", "ms", None),
        ("unloaded p99", "ms", None),
        ("p99 of accepted at 3×", "ms", None),
        ("accepted at 3×", "requests/s", None),
        ("share refused (429)", "", None),
        ("p50 of a refusal", "ms", None),
        ("p99 of a refusal", "ms", 20.0),
        ("neither 200 nor 429", "", 0.0),
    ):
        values = tuple(each[name] for each in found)
        yield Figure(f"overload: {name}", unit, values, at_most=at_most)
    accepted = tuple(each["p99 of accepted at 3×"] for each in found)
    unloaded = tuple(each["unloaded p99"] for each in found)
    yield Figure("overload: p99 accepted / unloaded", "×", ratios(accepted, unloaded), at_most=2.0)


def _once(server: Running, data: bytes, seconds: float) -> dict[str, float]:
    closed = load.run(load.closed(server.address, data, CLIENTS, seconds, seconds / 3)).figures()
    rate = closed["requests_per_s"]
    easy = load.run(Arrivals(server.address, data, CONNECTIONS).run(EASY * rate, seconds))
    flood = load.run(Arrivals(server.address, data, CONNECTIONS).run(FACTOR * rate, seconds))
    total = sum(map(len, flood.seconds.values())) + flood.unsent
    known = len(flood.seconds.get(200, [])) + len(flood.seconds.get(429, []))
    return {
        "capacity, 32 clients": rate, "p99 with 32 clients": closed["p99_ms"],
        "unloaded p99": ms(easy, 200, 99), "p99 of accepted at 3×": ms(flood, 200, 99),
        "accepted at 3×": len(flood.seconds.get(200, [])) / flood.elapsed,
        "share refused (429)": len(flood.seconds.get(429, [])) / total,
        "p50 of a refusal": ms(flood, 429, 50), "p99 of a refusal": ms(flood, 429, 99),
        "neither 200 nor 429": float(total - known),
    }  # fmt: skip


def ms(tally: Tally, status: int, percentile: float) -> float:
    times = tally.seconds.get(status)
    return float(1e3 * np.percentile(times, percentile)) if times else float("nan")
