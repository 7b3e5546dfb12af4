"""One chain of 256 walkers, whole and streamed, against the bare loop at batch 256."""

from collections.abc import Iterator

from interleave import Figure, ratios

from serving import load
from serving.bare import OnnxLoop, steps_per_second
from serving.roster import Setup
from serving.sampling import JSON, NDJSON, NPY, ask
from serving.servers import Running
from serving.venvs import PeerError

WALKERS, THIN = 256, 10
CASES = (  # how the answer is sent, and whether it is streamed
    ("whole, .npy", NPY, False),
    ("streamed, .npy", NPY, True),
    ("whole, JSON", JSON, False),
    ("streamed, NDJSON", NDJSON, True),
)


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    bare = OnnxLoop(setup.artefact, setup.threads, WALKERS)
    limit: list[float] = []
    found: dict[str, list[float]] = {words: [] for words, _, _ in CASES}
    with setup.service() as server:
        for i in range(rounds):
            limit.append(steps_per_second(bare, seconds))
            steps = THIN * max(1, round(seconds * limit[0] / WALKERS / THIN))
            for words, accept, streamed in CASES if i % 2 == 0 else reversed(CASES):
                found[words].append(walked(server, accept, streamed, steps))
    yield Figure(f"bare onnxruntime loop, batch {WALKERS}", "steps/s", tuple(limit))
    yield from _compared(found, limit)


def _compared(found: dict[str, list[float]], limit: list[float]) -> Iterator[Figure]:
    for words, rates in found.items():
        yield Figure(f"1 chain of {WALKERS}, {words}", "steps/s", tuple(rates))
        target = 0.9 if words.endswith(".npy") else None
        yield Figure(
            f"1 chain of {WALKERS}, {words} / bare loop", "×", ratios(rates, limit), target
        )
    for kind, whole, stream in ((".npy", *list(found)[:2]), ("JSON", *list(found)[2:])):
        costs = ratios(found[whole], found[stream])
        yield Figure(f"time streamed / whole, {kind}", "×", costs, at_most=1.1)


def walked(server: Running, accept: str, streamed: bool, steps: int) -> float:
    """Row-steps a second, from the request's first byte to the answer's last."""
    data = ask(accept, walkers=WALKERS, steps=steps, thin=THIN, seed=1, stream=streamed)
    seconds, stream = load.run(load.whole(server.address, data))
    if stream.status != 200:
        raise PeerError(f"/sample answered {stream.status}: {stream.last!r}")
    return WALKERS * steps / seconds
