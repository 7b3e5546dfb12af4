"""Three times as many requests as the service can serve.

Full load is a closed loop of 32 clients (8 for blocks of rows); its rate is the capacity. Then
requests arrive at three times that rate in an open loop: the service serves some and refuses the
others with 429. The generator runs on the same cores as the service.

One row of JSON is the worst case, because a refusal costs nearly as much as a response. It is
measured with the default configuration and as deployed (API keys on, `X-Forwarded-For` set).
"""

from collections.abc import Iterator

from measure import Figure, divide

from serving import load
from serving.load import ClosedLoop, OpenLoop, Tally
from serving.roster import Call, Setup, draw_pixels, make_npy_call, make_rows_call
from serving.servers import DEPLOYMENT_HEADERS, PeerError, Server

CONNECTIONS = 1024
FACTOR = 3.0
WARM_UP = 1.0
BLOCK = 16
FIGURES = (  # name, unit, at least, at most
    ("capacity", "requests/s", None, None),
    ("share refused at full load", "", None, None),
    ("p99 at full load", "ms", None, None),
    ("served at 3×", "requests/s", None, None),
    ("served at 3× / capacity", "×", 0.8, None),
    ("p99 of accepted at 3×", "ms", None, None),
    ("p99 of accepted at 3× / at full load", "×", None, 2.0),
    ("share refused at 3×", "", None, None),
    ("p50 of a refusal", "ms", None, None),
    ("p99 of a refusal", "ms", None, 20.0),
    ("neither 200 nor 429", "", None, 0.0),
)


def measure_overload(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """Figures of each case; every round measures all cases in turn."""
    x = draw_pixels(setup.artefact, BLOCK)
    row, block = make_rows_call("/reconstruct", x[:1]), make_npy_call("/reconstruct", x)
    with setup.start() as default, setup.start(with_keys=True) as deployed:
        cases = {
            "one row": (default, row, 32),
            "one row, API keys and proxy headers": (
                deployed, row.with_headers(DEPLOYMENT_HEADERS), 32,
            ),
            f"{BLOCK} rows": (default, block, 8),
        }  # fmt: skip
        results: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
        for i in range(rounds):
            order = list(cases) if i % 2 == 0 else list(reversed(cases))
            for case in order:
                results[case].append(_measure_case(*cases[case], seconds))
    for case, measured in results.items():
        for name, unit, at_least, at_most in FIGURES:
            values = tuple(each[name] for each in measured)
            yield Figure(f"{case}: {name}", unit, values, at_least, at_most)
    served, served_deployed = (
        [each["served at 3×"] for each in results[case]] for case in list(cases)[:2]
    )
    yield Figure(
        "one row: served at 3×, API keys and proxy headers / default configuration",
        "×",
        divide(served_deployed, served),
        at_least=0.9,
    )


def _measure_case(server: Server, call: Call, clients: int, seconds: float) -> dict[str, float]:
    data = call.data
    full = load.run(ClosedLoop(server.address, data).run(clients, seconds, seconds / 3))
    capacity = full.rate()
    if capacity == 0:
        raise PeerError(f"{server.name} served no request within {seconds:g} s.")
    loop = OpenLoop(server.address, data, CONNECTIONS)
    flood = load.run(loop.run(FACTOR * capacity, seconds, WARM_UP))
    p99, p99_full = flood.percentile(200, 99), full.percentile(200, 99)
    return {
        "capacity": capacity,
        "share refused at full load": _compute_share(full, 429),
        "p99 at full load": p99_full,
        "served at 3×": flood.rate(),
        "served at 3× / capacity": flood.rate() / capacity,
        "p99 of accepted at 3×": p99,
        "p99 of accepted at 3× / at full load": p99 / p99_full,
        "share refused at 3×": _compute_share(flood, 429),
        "p50 of a refusal": flood.percentile(429, 50),
        "p99 of a refusal": flood.percentile(429, 99),
        "neither 200 nor 429": float(_count_others(flood)),
    }


def _compute_share(tally: Tally, status: int) -> float:
    total = sum(map(len, tally.latencies.values())) + tally.unsent
    return tally.count(status) / total if total else float("nan")


def _count_others(tally: Tally) -> int:
    others = sum(len(t) for status, t in tally.latencies.items() if status not in (200, 429))
    return tally.unsent + others
