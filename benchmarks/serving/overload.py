"""Three times more than the service can do: who is taken is served in time, who is not, hears so.

Capacity is the closed loop's rate, of a service as it comes. What is asked too much has beside it a
gate of WAIT_MS, which is what an operator would set for callers who would rather hear no than wait.
(A closed loop would be refused there and ask again at once, which is no measure of capacity.)
Unloaded means arrivals at half of the capacity; both runs are open loops, so that waiting for a
free connection would count, and the second in which the gate finds its width does not. One row as
JSON is the worst case, because refusing costs nearly as much as answering, and the generator has to
send three times what one core can answer, on the same two cores; a block of 16 rows as `.npy` is a
request that takes the model some time.
"""

from collections.abc import Iterator

import numpy as np
from interleave import Figure, ratios

from serving import calls, load
from serving.calls import Call
from serving.load import Arrivals, Tally
from serving.roster import Setup, pixels
from serving.servers import Running

CONNECTIONS = 1024
FACTOR, EASY = 3.0, 0.5
WAIT_MS, WARM_UP = 4, 1.0
BLOCK = 16
NAMES = (
    ("capacity", "requests/s", None),
    ("p99 at capacity", "ms", None),
    ("unloaded p99", "ms", None),
    ("share refused unloaded", "", None),
    ("p99 of accepted at 3×", "ms", None),
    ("accepted at 3×", "requests/s", None),
    ("share refused (429)", "", None),
    ("p50 of a refusal", "ms", None),
    ("p99 of a refusal", "ms", 20.0),
    ("neither 200 nor 429", "", 0.0),
)


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    x = pixels(setup.artefact, BLOCK)
    cases = {
        "one row": (calls.rows("/reconstruct", x[:1]), 32),
        f"{BLOCK} rows": (calls.npy("/reconstruct", x), 8),
    }
    found: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
    with setup.service() as usual, setup.service(max_wait_ms=str(WAIT_MS)) as gated:
        for _ in range(rounds):
            for case, (call, clients) in cases.items():
                found[case].append(_once(usual, gated, call, clients, seconds))
    for case, rounds_of_it in found.items():
        yield from _figures(f"overload, {case}", rounds_of_it)


def _figures(case: str, found: list[dict[str, float]]) -> Iterator[Figure]:
    for name, unit, at_most in NAMES:
        values = tuple(each[name] for each in found)
        yield Figure(f"{case}: {name}", unit, values, at_most=at_most)
    accepted = tuple(each["p99 of accepted at 3×"] for each in found)
    unloaded = tuple(each["unloaded p99"] for each in found)
    yield Figure(f"{case}: p99 accepted / unloaded", "×", ratios(accepted, unloaded), at_most=2.0)


def _once(
    usual: Running, gated: Running, call: Call, clients: int, seconds: float
) -> dict[str, float]:
    data = call.data
    closed = load.run(load.closed(usual.address, data, clients, seconds, seconds / 3)).figures()
    rate = closed["requests_per_s"]
    easy, flood = (
        load.run(Arrivals(gated.address, data, CONNECTIONS).run(part * rate, seconds, WARM_UP))
        for part in (EASY, FACTOR)
    )
    return {
        "capacity": rate, "p99 at capacity": closed["p99_ms"],
        "unloaded p99": ms(easy, 200, 99), "share refused unloaded": share(easy, 429),
        "p99 of accepted at 3×": ms(flood, 200, 99),
        "accepted at 3×": len(flood.seconds.get(200, [])) / flood.elapsed,
        "share refused (429)": share(flood, 429),
        "p50 of a refusal": ms(flood, 429, 50), "p99 of a refusal": ms(flood, 429, 99),
        "neither 200 nor 429": float(others(flood)),
    }  # fmt: skip


def share(tally: Tally, status: int) -> float:
    total = sum(map(len, tally.seconds.values())) + tally.unsent
    return len(tally.seconds.get(status, [])) / total


def others(tally: Tally) -> int:
    """Neither 200 nor 429."""
    return tally.unsent + sum(len(t) for s, t in tally.seconds.items() if s not in (200, 429))


def ms(tally: Tally, status: int, percentile: float) -> float:
    times = tally.seconds.get(status)
    return float(1e3 * np.percentile(times, percentile)) if times else float("nan")
