"""64 single-walker chains over HTTP streaming against a bare loop at batch 64, with noise.

The bare loop draws one block of noise a step and keeps nothing, so it is the faster of two honest
baselines: 64 chains have 64 seeds. With one thread for onnxruntime on both sides HTTP has the other
CPUs; with one a CPU, as the service has by default, the bare loop has them all to itself. Where it
says so, the service has shared its threads among as many workers.
"""

from collections.abc import Iterator
from dataclasses import replace

from interleave import Figure, interleaved, ratios

from serving.bare import OnnxLoop, TorchLoop, steps_per_second
from serving.roster import Setup
from serving.sampling import streamed_steps
from serving.servers import Running

CHAINS = 64
THINS = (10, 1)


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    for threads in sorted({1, setup.threads}):
        bare = OnnxLoop(setup.artefact, threads, CHAINS)
        for workers in sorted({1, threads}):
            shared = f", {workers} workers" if workers > 1 else ""
            here = replace(setup, threads=threads // workers)
            with here.service(workers=str(workers)) as server:
                for thin in THINS:
                    words = f"thin {thin}, {threads} thread{'s' * (threads > 1)}{shared}"
                    yield from _against(server, bare, thin, words, rounds, seconds)
        torch = TorchLoop(setup.artefact, threads, CHAINS)
        rates = tuple(steps_per_second(torch, seconds) for _ in range(rounds))
        yield Figure(f"bare PyTorch loop, batch {CHAINS}, {threads} threads", "steps/s", rates)


def _against(
    server: Running, bare: OnnxLoop, thin: int, words: str, rounds: int, seconds: float
) -> Iterator[Figure]:
    ours, limit = interleaved(
        lambda: streamed_steps(server, CHAINS, thin, seconds, seconds / 2)[0],
        lambda: steps_per_second(bare, seconds),
        rounds,
    )
    target = 0.8 if thin == THINS[0] else None
    yield Figure(f"{CHAINS} chains, {words}, streamed", "steps/s", tuple(ours))
    yield Figure(f"bare onnxruntime loop, batch {CHAINS} ({words})", "steps/s", tuple(limit))
    yield Figure(f"{CHAINS} chains, {words} / bare loop", "×", ratios(ours, limit), target)
