"""How many requests the load generator itself can make: a server that answers without looking."""

import sys
from collections.abc import Iterator

from interleave import Figure

from serving import calls, load
from serving.roster import Setup, pixels
from serving.rows import CLIENTS
from serving.servers import PEERS, free_port, started


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    data = calls.rows("/reconstruct", pixels(setup.artefact, 1)).data
    port = free_port()
    command = [sys.executable, str(PEERS / "trivial.py"), str(port), str(len(data))]
    with started("trivial", command, {}, port) as server:
        tallies = [
            load.run(load.closed(server.address, data, CLIENTS, seconds, seconds / 3))
            for _ in range(rounds)
        ]
    values = tuple(tally.figures()["requests_per_s"] for tally in tallies)
    yield Figure("load generator against a server that does nothing", "requests/s", values)
