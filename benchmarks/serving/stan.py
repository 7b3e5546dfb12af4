"""Sampling from the same Gaussian over REST: httpstan (NUTS) and this service (gibbs).

NUTS draws are nearly independent and the steps of our chain are not, so both are also compared in
effective draws: n / (1 + 2 Σ ρ_t), the smallest over the columns. httpstan gets its default of
1,000 warm-up draws, and a new seed for each fit, because it caches fits.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import Figure, divide

from serving import artefacts, load
from serving.chains import NPY, build_sample_request
from serving.load import build_request
from serving.roster import JSON_HEADERS, Array, Setup, read_npy
from serving.servers import PeerError, Server, find_free_port, install_peer, start_server

DRAWS, WALKERS = 1000, 64
PROGRAM = """
data { int d; vector[d] m; matrix[d, d] C; }
parameters { vector[d] x; }
model { x ~ multi_normal(m, C); }
"""
NUTS = "stan::services::sample::hmc_nuts_diag_e_adapt"

Rates = list[tuple[float, float]]  # draws and effective draws per second, one pair per round


def compare_with_stan(setup: Setup, rounds: int, seconds: float) -> Iterator[Figure]:
    """Draws per second of httpstan and of this service with 1 and 64 walkers."""
    with tempfile.TemporaryDirectory(prefix="lm-stan-") as name:
        models = Path(name) / "models"
        artefact, m, C = artefacts.make_gaussian(models)
        gaussian = replace(setup, models=models, artefact=artefact)
        stan, compile_seconds = _measure_httpstan(setup, rounds, m, C, Path(name))
        ours = {walkers: _measure_service(gaussian, rounds, walkers, m, C)
                for walkers in (1, WALKERS)}  # fmt: skip
    yield Figure("httpstan: time to compile the model", "s", (compile_seconds,))
    yield from _make_figures("httpstan, 1 chain", stan)
    for walkers, rates in ours.items():
        yield from _make_figures(f"this service, {walkers} walkers", rates)
        ratio = divide([e for _, e in rates], [e for _, e in stan])
        yield Figure(f"effective draws/s, {walkers} walkers / httpstan", "×", ratio)


def _make_figures(label: str, rates: Rates) -> Iterator[Figure]:
    yield Figure(f"{label}: draws", "draws/s", tuple(draws for draws, _ in rates))
    yield Figure(f"{label}: effective draws", "draws/s", tuple(effective for _, effective in rates))


def _measure_httpstan(
    setup: Setup, rounds: int, m: Array, C: Array, folder: Path
) -> tuple[Rates, float]:
    """Return the rates, and the seconds that compiling the model took."""
    port = find_free_port()
    command = [install_peer("httpstan", setup.venvs).find_tool("python"), "-m", "httpstan"]
    environment = {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
    command += ["--port", str(port)]
    with start_server("httpstan", command, environment, port, cwd=folder) as server:
        start = time.perf_counter()
        model = _post(server, "/v1/models", {"program_code": PROGRAM})["name"]
        compile_seconds = time.perf_counter() - start
        data = {"d": len(m), "m": m.tolist(), "C": C.tolist()}
        rates = [_fit(server, model, data, m, C, seed) for seed in range(1, rounds + 1)]
        return rates, compile_seconds


def _fit(
    server: Server, model: str, data: Any, m: Array, C: Array, seed: int
) -> tuple[float, float]:
    """Return draws and effective draws per second, from the request to the last byte."""
    start = time.perf_counter()
    body = {"function": NUTS, "data": data, "num_samples": DRAWS, "random_seed": seed}
    operation = _post(server, f"/v1/{model}/fits", body)
    while not operation["done"]:
        time.sleep(0.005)
        operation = _get(server, f"/v1/{operation['name']}")
    request = build_request("GET", f"/v1/{operation['result']['name']}")
    _, text = load.run(load.fetch(server.address, request))
    seconds = time.perf_counter() - start
    draws = _parse_draws(text, len(m))
    _check_draws(draws, m, C)
    return len(draws) / seconds, count_effective(draws[None]) / seconds


def _parse_draws(text: bytes, d: int) -> Array:
    """Read the draws: lines with the topic "sample" and values of x.1 to x.d."""
    names = [f"x.{i}" for i in range(1, d + 1)]
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    rows = [line["values"] for line in lines
            if line.get("topic") == "sample" and isinstance(line["values"], dict)]  # fmt: skip
    return np.asarray([[row[name] for name in names] for row in rows if names[0] in row])


def _measure_service(setup: Setup, rounds: int, walkers: int, m: Array, C: Array) -> Rates:
    rates = []
    with setup.start() as server:
        for seed in range(rounds):
            data = build_sample_request(
                NPY, walkers=walkers, steps=DRAWS, thin=1, burn_in=100, seed=seed
            )
            start = time.perf_counter()
            status, body = load.run(load.fetch(server.address, data))
            seconds = time.perf_counter() - start
            if status != 200:
                raise PeerError(f"/sample returned {status}: {body[:300]!r}")
            x = read_npy(body)  # (kept, walkers, d)
            _check_draws(x.reshape(-1, x.shape[-1]), m, C)
            effective = count_effective(x.swapaxes(0, 1)) / seconds
            rates.append((x.shape[0] * walkers / seconds, effective))
    return rates


def _check_draws(draws: Array, m: Array, C: Array) -> None:
    """Raise PeerError unless there are enough draws and their mean is close to m."""
    error = np.abs(draws.mean(0) - m) / np.sqrt(np.diag(C))
    if len(draws) < DRAWS or error.max() > 0.5:
        raise PeerError(
            f"{len(draws)} draws, whose mean is off by {error.max():.2f} standard deviations."
        )


def count_effective(x: Array) -> float:
    """Return the effective draws of chains x (chains, n, d), the smallest over the columns.

    The sum of autocorrelations ρ_t ends at the first pair that is not positive (Geyer 1992).
    """
    x = x - x.mean((0, 1))
    n = x.shape[1]
    power = np.abs(np.fft.rfft(x, 2 * n, axis=1)) ** 2  # padded, so that the ends do not meet
    ρ = np.fft.irfft(power, axis=1)[:, :n].mean(0)  # (n, d)
    ρ = ρ / ρ[0]
    pairs = ρ[: n // 2 * 2].reshape(-1, 2, x.shape[2]).sum(1)  # (n/2, d)
    positive = np.cumprod(pairs > 0, axis=0)
    τ = 2 * (pairs * positive).sum(0) - 1
    return float((x.shape[0] * n / np.maximum(τ, 1e-9)).min())


def _post(server: Server, path: str, body: Any) -> Any:
    return _fetch_json(
        server, build_request("POST", path, json.dumps(body).encode(), **JSON_HEADERS)
    )


def _get(server: Server, path: str) -> Any:
    return _fetch_json(server, build_request("GET", path))


def _fetch_json(server: Server, data: bytes) -> Any:
    status, body = load.run(load.fetch(server.address, data, 600))
    if status >= 300:
        raise PeerError(f"httpstan returned {status}: {body[-400:]!r}")
    return json.loads(body)
