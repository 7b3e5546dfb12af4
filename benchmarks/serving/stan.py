"""Sampling over REST from the same Gaussian: httpstan (NUTS) and this service (gibbs).

NUTS draws are nearly independent and a chain's steps are not, so draws are also counted in
effective ones: n / (1 + 2 Σ ρ_t), the smallest over the columns. httpstan gets what it needs to
adapt (1,000 warm-up draws, its default) and starts each fit with a new seed, since fits are cached.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from interleave import Figure, ratios

from serving import artefacts, load
from serving.calls import AS_JSON, Array, loaded
from serving.roster import Setup
from serving.sampling import NPY, ask
from serving.servers import Running, free_port, started
from serving.venvs import PeerError, venv_of
from serving.wire import request

DRAWS, WALKERS = 1000, 64
PROGRAM = """
data { int d; vector[d] m; matrix[d, d] C; }
parameters { vector[d] x; }
model { x ~ multi_normal(m, C); }
"""
NUTS = "stan::services::sample::hmc_nuts_diag_e_adapt"


def figures(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="lm-stan-") as name:
        models = Path(name) / "models"
        artefact, m, C = artefacts.gaussian(models)
        here = replace(setup, models=models, artefact=artefact)
        theirs, compiled = _httpstan(setup, rounds, m, C, Path(name))
        ours = {walkers: _service(here, rounds, walkers, m, C) for walkers in (1, WALKERS)}
    yield Figure("httpstan: time to compile the model", "s", (compiled,))
    yield from _figures("httpstan, 1 chain", theirs)
    for walkers, found in ours.items():
        yield from _figures(f"this service, {walkers} walkers", found)
        effective = [e for _, e in found], [e for _, e in theirs]
        words = f"effective draws/s, {walkers} walkers / httpstan"
        yield Figure(words, "×", ratios(*effective))


def _figures(words: str, found: list[tuple[float, float]]) -> Iterator[Figure]:
    yield Figure(f"{words}: draws", "draws/s", tuple(draws for draws, _ in found))
    yield Figure(f"{words}: effective draws", "draws/s", tuple(effective for _, effective in found))


def _httpstan(
    setup: Setup, rounds: int, m: Array, C: Array, folder: Path
) -> tuple[list[tuple[float, float]], float]:
    port = free_port()
    command = [venv_of("httpstan", setup.venvs).tool("python"), "-m", "httpstan"]
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    command += ["--port", str(port)]
    with started("httpstan", command, environment, port, cwd=folder) as server:
        began = time.perf_counter()
        model = _post(server, "/v1/models", {"program_code": PROGRAM})["name"]
        compiled = time.perf_counter() - began
        data = {"d": len(m), "m": m.tolist(), "C": C.tolist()}
        return [_fit(server, model, data, m, C, seed) for seed in range(1, rounds + 1)], compiled


def _fit(
    server: Running, model: str, data: Any, m: Array, C: Array, seed: int
) -> tuple[float, float]:
    """Draws and effective draws a second, from the request to the last byte of the draws."""
    began = time.perf_counter()
    body = {"function": NUTS, "data": data, "num_samples": DRAWS, "random_seed": seed}
    operation = _post(server, f"/v1/{model}/fits", body)
    while not operation["done"]:
        time.sleep(0.005)
        operation = _get(server, f"/v1/{operation['name']}")
    _, text = load.run(
        load.fetch(server.address, request("GET", f"/v1/{operation['result']['name']}"))
    )
    spent = time.perf_counter() - began
    draws = _draws(text, len(m))
    _check(draws, m, C)
    return len(draws) / spent, effective(draws[None]) / spent


def _draws(text: bytes, d: int) -> Array:
    """Lines of the fit that hold a draw: topic "sample" with values of x.1 .. x.d."""
    names = [f"x.{i}" for i in range(1, d + 1)]
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    rows = [line["values"] for line in lines
            if line.get("topic") == "sample" and isinstance(line["values"], dict)]  # fmt: skip
    return np.asarray([[row[name] for name in names] for row in rows if names[0] in row])


def _service(
    setup: Setup, rounds: int, walkers: int, m: Array, C: Array
) -> list[tuple[float, float]]:
    found = []
    with setup.service() as server:
        for seed in range(rounds):
            data = ask(NPY, walkers=walkers, steps=DRAWS, thin=1, burn_in=100, seed=seed)
            began = time.perf_counter()
            status, body = load.run(load.fetch(server.address, data))
            spent = time.perf_counter() - began
            if status != 200:
                raise PeerError(f"/sample answered {status}: {body[:300]!r}")
            x = loaded(body)  # (kept, walkers, d)
            _check(x.reshape(-1, x.shape[-1]), m, C)
            found.append((x.shape[0] * walkers / spent, effective(x.swapaxes(0, 1)) / spent))
    return found


def _check(draws: Array, m: Array, C: Array) -> None:
    """Both must sample from the Gaussian that was asked for."""
    far = np.abs(draws.mean(0) - m) / np.sqrt(np.diag(C))
    if len(draws) < DRAWS or far.max() > 0.5:
        raise PeerError(f"{len(draws)} draws whose mean is {far.max():.2f} deviations off.")


def effective(x: Array) -> float:
    """Effective draws of chains x (chains, n, d): the least over columns (Geyer's truncation)."""
    x = x - x.mean((0, 1))
    n = x.shape[1]
    power = np.abs(np.fft.rfft(x, 2 * n, axis=1)) ** 2
    ρ = np.fft.irfft(power, axis=1)[:, :n].mean(0)  # (n, d)
    ρ = ρ / ρ[0]
    pairs = ρ[: n // 2 * 2].reshape(-1, 2, x.shape[2]).sum(1)  # (n/2, d)
    positive = np.cumprod(pairs > 0, axis=0)
    τ = 2 * (pairs * positive).sum(0) - 1
    return float((x.shape[0] * n / np.maximum(τ, 1e-9)).min())


def _post(server: Running, path: str, body: Any) -> Any:
    return _said(server, request("POST", path, json.dumps(body).encode(), **AS_JSON))


def _get(server: Running, path: str) -> Any:
    return _said(server, request("GET", path))


def _said(server: Running, data: bytes) -> Any:
    status, body = load.run(load.fetch(server.address, data, 600))
    if status >= 300:
        raise PeerError(f"httpstan answered {status}: {body[-400:]!r}")
    return json.loads(body)
