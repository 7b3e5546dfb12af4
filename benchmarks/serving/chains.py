"""64 single-walker chains over HTTP streaming against a bare loop at batch 64, with noise.

The bare loop draws one block of noise a step and keeps nothing, so it is the faster of two honest
baselines: 64 chains have 64 seeds.
"""

from collections.abc import Iterator

from interleave import Figure, interleaved, ratios

from serving.bare import OnnxLoop, TorchLoop, steps_per_second
from serving.roster import Setup
from serving.sampling import streamed_steps
from serving.servers import Running

CHAINS = 64
THINS = (10, 1)


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    bare = OnnxLoop(setup.artefact, setup.threads, CHAINS)
    torch = TorchLoop(setup.artefact, setup.threads, CHAINS)
    with setup.service() as server:
        for thin in THINS:
            yield from _against(server, bare, thin, rounds, seconds)
    rates = tuple(steps_per_second(torch, seconds) for _ in range(rounds))
    yield Figure(f"bare PyTorch loop, batch {CHAINS}", "steps/s", rates)


def _against(
    server: Running, bare: OnnxLoop, thin: int, rounds: int, seconds: float
) -> Iterator[Figure]:
    ours, limit = interleaved(
        lambda: streamed_steps(server, CHAINS, thin, seconds, seconds / 2)[0],
        lambda: steps_per_second(bare, seconds),
        rounds,
    )
    words, target = f"{CHAINS} chains, thin {thin}", 0.8 if thin == THINS[0] else None
    yield Figure(f"{words}, streamed", "steps/s", tuple(ours))
    yield Figure(f"bare onnxruntime loop, batch {CHAINS} (thin {thin})", "steps/s", tuple(limit))
    yield Figure(f"{words} / bare loop", "×", ratios(ours, limit), target)
