"""Is the paper's chain consistent? Compare its stationary law with the moments that it follows.

The chain X' ~ N(μ(X), Σ(X)), here the kernel `moment` with μ = r and Σ = s²αA, has a stationary law
π. Around a point x₀, in a ball of radius δ, the paper claims (section 3.3)

    m_π = E_π[x | x₀] ≈ E_π[μ | x₀]
    C_π = Cov_π[x | x₀] ≈ E_π[(μ - m_π)(μ - m_π)ᵀ | x₀]        for ‖Σ‖^½ and ‖μ - x‖ ≪ δ

by way of a ball ‖μ(x) - x₀‖ < δ (eq. e-mu). Over all of space both are exact,

    E_π[x] = E_π[μ]        Cov_π[x] = E_π[Σ] + Cov_π[μ]

so these two tell whether the chain has settled. In one or two columns π itself is known, from the
operator equation on a grid (`grid.py`).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localmoments.arrays import Doubles, Floats
from localmoments.chain import make_transition, positions
from localmoments.chain_state import Transition
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.evaluate.calibration import FEWEST, Cloud, compute_local_moments
from trainer.evaluate.grid import Grid, solve, total_variation

WALKERS, BURN_IN, KEPT, THIN = 250, 50, 20, 5  # of the chain
LONG = 1_000, 300, 400, 1  # the same, of the chain that is compared with the grid's π
TRACES = 256  # states at which tr Σ is computed
CENTRES = 64  # points x₀
PARTS = (0.01, 0.1)  # parts of the chain's samples within a ball around x₀
GRID = 80  # cells along each of one or two columns
LEAST_EIGENVALUE = 2e-4  # of A on the grid: Σ must stay positive definite


def consistency_figures(model: Model, train: Floats, rng: np.random.Generator) -> dict[str, Any]:
    """Walk the kernel `moment`, the paper's chain, from the model's start points.

    Args:
        train: training rows in the model's units; (m, d).
    """
    m = model.manifest
    transition = make_transition(model, seed=1, kernel="moment")
    try:
        triples = list(_steps(model, transition, rng, WALKERS, BURN_IN, KEPT, THIN))
    except DivergedError:
        return {"chain": "diverged"}
    x, mu, following = (
        np.concatenate(part).astype(np.float64) for part in zip(*triples, strict=True)
    )
    some = rng.permutation(len(x))[:TRACES]
    local = compute_local_moments(model, x[some].astype(np.float32), 0)
    scale = transition.scale[0]
    claimed = float(scale**2 * m.alpha * local.traces.mean())  # E tr Σ with Σ = s²αA
    figures: dict[str, Any] = {"scale": scale, "samples": len(x)}
    figures |= global_figures(x, mu, following, train, claimed)
    figures |= local_figures(x, mu, following, train, x[rng.permutation(len(x))[:CENTRES]])
    if m.input_dims <= 2:
        figures["operator equation"] = _operator_figures(model, transition, train, rng)
    return figures


def _steps(
    model: Model, transition: Transition, rng: np.random.Generator, walkers: int, burn_in: int,
    kept: int, thin: int,
) -> Iterator[tuple[Floats, Floats, Floats]]:  # fmt: skip
    """X, μ(X) and X' at the kept steps; (W, d) each."""
    starts = model.start_points()
    state = starts[rng.integers(len(starts), size=walkers)]
    for position in positions(model, transition, state, burn_in + kept * thin):
        if position.step > burn_in and position.step % thin == 0:
            yield state, position.mean, position.noisy
        state = position.state


def _operator_figures(
    model: Model, transition: Transition, train: Floats, rng: np.random.Generator
) -> dict[str, float]:
    """Total variation between the grid's π and a long chain, and between π and the data."""
    m, margin = model.manifest, 3 * model.manifest.sigma
    d = m.input_dims
    low, high = train.min(0) - margin, train.max(0) + margin
    grid = Grid(tuple(map(float, low)), tuple(map(float, high)), (GRID,) * d)
    z = grid.centres().astype(np.float32)
    v = np.broadcast_to(np.eye(d, dtype=np.float32), (len(z), d, d))
    out = model.run("moments", x=z, v=np.ascontiguousarray(v), **model.noise_level(len(z)))
    λ, U = np.linalg.eigh(out["products"].astype(np.float64))
    A = (U * np.maximum(λ, LEAST_EIGENVALUE)[:, None]) @ np.swapaxes(U, 1, 2)
    π = solve(grid, out["mean"].astype(np.float64), transition.scale[0] ** 2 * m.alpha * A)
    chain = np.concatenate([x for _, _, x in _steps(model, transition, rng, *LONG)])
    of_chain, of_data = (grid.histogram(x.astype(np.float64)) for x in (chain, train))
    # Cells of twice the size, where the histograms have less noise.
    of_grid, of_chain, of_data = (grid.merge(law) for law in (π, of_chain, of_data))
    return {
        "cells": len(z),
        "total variation, chain": total_variation(of_grid, of_chain),
        "total variation, data": total_variation(of_grid, of_data),
    }


def global_figures(
    x: Doubles, mu: Doubles, following: Doubles, train: Floats, claimed: float
) -> dict[str, Any]:
    """The two exact identities, and the chain's law against the data.

    Args:
        x, mu, following: X, μ(X) and X' of every kept step; (n, d) each.
        train: (m, d).
        claimed: E[tr Σ] by the model's Jacobian.
    """
    added = np.square(following - mu).sum(1).mean()
    total, between = (float(a.var(0).sum()) for a in (following, mu))
    C = float(train.var(0, dtype=np.float64).sum())
    return {
        "mean error": float(np.linalg.norm(following.mean(0) - mu.mean(0)) / np.sqrt(total)),
        "(E tr Σ + tr Cov μ) / tr C_π": float((added + between) / total),
        "E tr Σ / tr C_π": float(added / total),
        "E‖x' - μ‖² / E tr Σ": float(added / claimed),
        "mean error against the data": float(
            np.linalg.norm(following.mean(0) - train.mean(0, dtype=np.float64)) / np.sqrt(C)
        ),
        "tr C_π / tr C of the data": float(total / C),
    }


def local_figures(
    x: Doubles, mu: Doubles, following: Doubles, train: Floats, centres: Doubles
) -> dict[str, Any]:
    """Medians over centres x₀ of the errors in a ball that holds a part of the chain's samples.

    Args:
        x, mu, following: X, μ(X) and X' of every kept step; (n, d) each.
        centres: the points x₀; (k, d).
    """
    step = float(np.median(np.linalg.norm(mu - x, axis=1)))
    noise = float(np.median(np.linalg.norm(following - mu, axis=1)))
    clouds = Cloud(x), Cloud(mu), Cloud(train)
    distances = [tuple(np.sqrt(cloud.squared(x0)) for cloud in clouds) for x0 in centres]
    figures = {}
    for part in PARTS:
        errors = []
        for far, far_mu, far_data in distances:
            delta = float(np.quantile(far, part))
            inside = far < delta
            m, C = _mean_and_trace(x[inside])
            mu_m, _ = _mean_and_trace(mu[inside])
            near_m, _ = _mean_and_trace(mu[far_mu < delta])
            real_m, real_C = _mean_and_trace(train[far_data < delta])
            errors.append((
                step / delta, noise / delta,
                np.linalg.norm(m - mu_m) / np.sqrt(C),
                np.linalg.norm(m - near_m) / np.sqrt(C),
                np.square(mu[inside] - m).sum(1).mean() / C,
                np.linalg.norm(m - real_m) / np.sqrt(real_C), C / real_C,
            ))  # fmt: skip
        columns = np.array(errors, np.float64).T
        names = ("‖μ - x‖ / δ", "‖x' - μ‖ / δ", "mean error", "mean error, ball on μ",
                 "covariance ratio", "mean error against the data",
                 "covariance ratio against the data")  # fmt: skip
        figures[f"ball of {part:.0%} of the samples"] = {
            **{name: _finite_median(column) for name, column in zip(names, columns, strict=True)},
            "centres with data": int(np.isfinite(columns[-1]).sum()),
        }
    return figures


def _mean_and_trace(x: NDArray[np.floating]) -> tuple[Doubles, float]:
    """Mean and total variance of rows (n, d); NaN if there are too few."""
    if len(x) < FEWEST:
        return np.full(x.shape[1], np.nan), float("nan")
    return x.mean(0, dtype=np.float64), float(x.var(0, dtype=np.float64).sum())


def _finite_median(values: Doubles) -> float | str:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else "no neighbours"
