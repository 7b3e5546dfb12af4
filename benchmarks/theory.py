"""Check the paper's claims on known laws and on the shipped models, with plots for docs/theory.md.

    python benchmarks/theory.py laws                   # known laws: about three minutes
    python benchmarks/theory.py models --data FOLDER   # every model in models/: the same

The figures go to benchmarks/results/theory.json, the plots to docs/images/theory-*.png. FOLDER
holds mnist-train.npz and frey-faces.npz.

| experiment  | claim                                                                             |
|-------------|-----------------------------------------------------------------------------------|
| optima      | a DAE and an RCAE with α = σ² have the same r and J as σ → 0          (eq. 3)     |
| networks    | the same, trained                                                                 |
| windows     | r and αJ are the moments in a δ-ball                  (eq. simple-rJ-solutions)   |
| operator    | the chain's law solves π = ∫ π N(μ, Σ), and is near p  (eq. mixture, section 3.3) |
| consistency | m_π ≈ E[μ | x₀], C_π ≈ E[(μ - m_π)(μ - m_π)ᵀ | x₀]     (section 3.3)              |
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import theory_plots as plots
import torch

from localmoments.arrays import Doubles
from localmoments.model import Model
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import make_kernels
from trainer.criteria import Criterion
from trainer.data import load
from trainer.data.known_sets import KNOWN_SETS, locate_file
from trainer.data.synthetic import GaussianMixture, Spiral
from trainer.evaluate import claims_figures, read_split, rows_for, split_again
from trainer.evaluate.command import data_options
from trainer.evaluate.grid import Grid, best_reconstruction, solve, total_variation

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "theory.json"

LINE = GaussianMixture(  # two bumps with a valley between them
    np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.array([[[0.16]], [[0.36]]])
)
PLANE = GaussianMixture(
    np.array([0.6, 0.4]),
    np.array([[-1.0, 0.0], [1.5, 0.5]]),
    np.array([[[0.5, 0.3], [0.3, 0.3]], [[0.2, -0.15], [-0.15, 0.6]]]),
)
AXIS = Grid((-5.0,), (5.0,), (600,))
SQUARE = Grid((-4.0, -4.0), (4.5, 4.0), (80, 80))
SPIRAL_BOX = Grid((-1.7, -1.7), (1.9, 1.9), (80, 80))


def compute_density(law: GaussianMixture, x: Doubles, sigma: float = 0.0) -> Doubles:
    """Return the density of X + σε at rows x; (n,)."""
    d = x.shape[1]
    total = np.zeros(len(x))
    for w, m, C in zip(law.weights, law.means, law.covariances, strict=True):
        S = C + sigma**2 * np.eye(d)
        away = x - m
        power = np.einsum("ni,ij,nj->n", away, np.linalg.inv(S), away)
        total += w * np.exp(-power / 2) / np.sqrt(np.linalg.det(2 * np.pi * S))
    return total


def compute_masses(law: GaussianMixture, grid: Grid, sigma: float = 0.0) -> Doubles:
    p = compute_density(law, grid.centres(), sigma)
    return np.asarray(p / p.sum(), np.float64)


def make_spiral_mixture(components: int = 300) -> GaussianMixture:
    """Return the spiral as a mixture of round bumps along the curve; its posterior is known."""
    law = Spiral()
    t = np.sqrt(np.linspace(law.first**2, law.last**2, components))
    means = law.pitch * t[:, None] * np.stack([np.cos(t), np.sin(t)], 1)
    # bumps overlap: they are at most 1.5 of their widths apart
    C = np.broadcast_to(law.noise**2 * np.eye(2), (components, 2, 2))
    return GaussianMixture(np.full(components, 1 / components), means, C)


# --- optima --------------------------------------------------------------------------------------


def compare_optima() -> dict[str, Any]:
    """Compare r and J of the optimal DAE and RCAE by root mean squares over p, without networks."""
    grid = Grid((-6.0,), (6.0,), (8000,))
    x, p = grid.centres(), compute_masses(LINE, grid)
    results = {}
    for sigma in (0.8, 0.4, 0.2, 0.1, 0.05, 0.025):
        r, C = LINE.posterior(x, np.array([sigma]))
        rcae = best_reconstruction(grid, np.maximum(p, 1e-300), sigma**2)
        J, rcae_J = C[:, 0, 0] / sigma**2, np.gradient(rcae, x[:, 0])
        results[f"{sigma:g}"] = {
            "r": _compute_rms(rcae - r[:, 0], p),
            "J": _compute_rms(rcae_J - J, p),
            "r, relative": _compute_rms(rcae - r[:, 0], p) / _compute_rms(r[:, 0] - x[:, 0], p),
            "J, relative": _compute_rms(rcae_J - J, p) / _compute_rms(1 - J, p),
        }
    return results


def _coarsen(law: Doubles) -> Doubles:
    """Merge 600 cells into 75, so that a histogram has little noise."""
    return np.asarray(law.reshape(-1, 8).sum(1), np.float64)


def _compute_rms(values: Doubles, p: Doubles) -> float:
    return float(np.sqrt(p @ np.square(values)))


# --- networks ------------------------------------------------------------------------------------


def train_network(kind: str, sigma: float, rows: torch.Tensor, steps: int) -> AutoEncoder:
    """Train a small network; all criteria start from the same weights. Weights are averaged."""
    torch.manual_seed(0)
    ae = AutoEncoder(Architecture(rows.shape[1], (48, 48), "silu", "linear"))
    criterion = Criterion(kind, "squared", sigma**2, (sigma, sigma), probes=0)  # type: ignore[arg-type]
    g = torch.Generator().manual_seed(1)
    adam = torch.optim.Adam(ae.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    mean = torch.optim.swa_utils.AveragedModel(
        ae, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998)
    )
    for _ in range(steps):
        batch = rows[torch.randint(len(rows), (512,), generator=g)]
        adam.zero_grad()
        criterion(ae, batch, g).backward()
        adam.step()
        schedule.step()
        mean.update_parameters(ae)
    averaged = mean.module
    assert isinstance(averaged, AutoEncoder)
    return averaged.eval()


@torch.no_grad()
def compute_moments(ae: AutoEncoder, x: Doubles) -> tuple[Doubles, Doubles]:
    """Return r (n, d) and J (n, d, d)."""
    n, d = x.shape
    at = ae.linearise(torch.from_numpy(x.astype(np.float32)))
    J = at.jvp(torch.eye(d).expand(n, d, d)).mT
    return at.value.numpy().astype(np.float64), J.numpy().astype(np.float64)


@torch.no_grad()
def run_chain(ae: AutoEncoder, sigma: float, start: Doubles, steps: int, keep: int) -> Doubles:
    """Run the exported kernel `moment` at its scale and return the last `keep` steps; (n, d)."""
    kernel = make_kernels(ae, sigma)["moment"]
    g = torch.Generator().manual_seed(2)
    x = torch.from_numpy(start.astype(np.float32))
    scale, kept = torch.full((len(x), 1), 2**0.5), []
    for step in range(steps):
        x, _ = kernel(x, torch.randn(len(x), kernel.noise, generator=g), scale)
        if step >= steps - keep:
            kept.append(x.numpy())
    return np.concatenate(kept).astype(np.float64)


def compare_networks(steps: int) -> dict[str, Any]:
    """Train a DAE and an RCAE on the same rows and compare r, J and samples."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(LINE.sample(400_000, rng).astype(np.float32))
    x, p = AXIS.centres(), compute_masses(LINE, AXIS)
    results = {}
    for sigma in (0.6, 0.35, 0.2):
        dae, rcae = (train_network(kind, sigma, rows, steps) for kind in ("dae", "rcae"))
        (r, J), (rcae_r, rcae_J) = compute_moments(dae, x), compute_moments(rcae, x)
        truth, C = LINE.posterior(x, np.array([sigma]))
        best = best_reconstruction(AXIS, np.maximum(p, 1e-300), sigma**2)
        samples = [
            run_chain(ae, sigma, LINE.sample(4000, np.random.default_rng(3)), 150, 50)
            for ae in (dae, rcae)
        ]
        laws = [_coarsen(AXIS.histogram(s)) for s in samples]
        Σ = 2 * sigma**2 * np.maximum(J, 1e-4)
        π = _coarsen(solve(AXIS, r, Σ))
        results[f"{sigma:g}"] = {
            "r": _compute_rms((r - rcae_r)[:, 0], p),
            "r, relative": _compute_rms((r - rcae_r)[:, 0], p) / _compute_rms((truth - x)[:, 0], p),
            "J": _compute_rms((J - rcae_J)[:, 0, 0], p),
            "DAE against its optimum": _compute_rms((r - truth)[:, 0], p),
            "RCAE against its optimum": _compute_rms(rcae_r[:, 0] - best, p),
            "J of the DAE against its optimum": _compute_rms((J - C / sigma**2)[:, 0, 0], p),
            "samples, total variation": total_variation(*laws),
            "operator equation against the DAE's chain": total_variation(π, laws[0]),
        }
        print(f"networks, σ = {sigma}: {results[f'{sigma:g}']}", flush=True)
    return results


# --- windows -------------------------------------------------------------------------------------


def compare_windows(sigma: float = 0.2) -> dict[str, Any]:
    """Compare both readings of a δ-ball with the optimal DAE, over δ/σ."""
    x, p = AXIS.centres()[:, 0], compute_masses(LINE, AXIS)
    r, C = LINE.posterior(x[:, None], np.array([sigma]))
    r, αJ = r[:, 0], C[:, 0, 0]
    inside = p > 1e-3 * p.max()
    results: dict[str, Any] = {"σ": sigma, "δ/σ": [], "narrow": [], "wide": []}
    for ratio in np.geomspace(0.25, 16, 25):
        near = np.abs(x[:, None] - x) < ratio * sigma  # (x₀, x)
        w = near * p
        w = w / w.sum(1, keepdims=True)
        m = w @ x
        c = w @ x**2 - m**2
        j = c / (sigma**2 + c)
        results["δ/σ"].append(float(ratio))
        for name, mean, variance in (
            ("narrow", m, c),
            ("wide", (1 - j) * m + j * x, sigma**2 * j),
        ):
            weight = p[inside] / p[inside].sum()
            results[name].append((
                _compute_rms((mean - r)[inside], weight) / _compute_rms((r - x)[inside], weight),
                float(np.sum(weight * variance[inside]) / np.sum(weight * αJ[inside])),
            ))  # fmt: skip
    return results


# --- the operator equation -----------------------------------------------------------------------


def make_step(
    law: GaussianMixture, x: Doubles, sigma: float, step: float, ratio: float
) -> tuple[Doubles, Doubles]:
    """Return μ = x + η (r - x) and Σ = ηcC of the law's moments; η = 1 is the paper's step."""
    r, C = law.posterior(x, np.full(x.shape[1], sigma))
    return x + step * (r - x), step * ratio * C


def solve_on_the_line() -> dict[str, Any]:
    """Return the total variation between π and p over σ, for full and small steps."""
    x, p = AXIS.centres(), compute_masses(LINE, AXIS)
    results: dict[str, Any] = {}
    kinds = {"full step, Σ = C": (1.0, 1.0), "full step, Σ = 2C": (1.0, 2.0),
             "η = 0.1, Σ = ηC": (0.1, 1.0), "η = 0.1, Σ = 2ηC": (0.1, 2.0),
             "η = 0.1, Σ = 4ηC": (0.1, 4.0)}  # fmt: skip
    for sigma in (0.8, 0.4, 0.2):
        laws = {name: solve(AXIS, *make_step(LINE, x, sigma, *kind))
                for name, kind in kinds.items()}  # fmt: skip
        results[f"{sigma:g}"] = {name: total_variation(π, p) for name, π in laws.items()}
        results[f"{sigma:g}"]["smoothed data"] = total_variation(
            compute_masses(LINE, AXIS, sigma), p
        )
        if sigma == 0.4:
            plots.draw_line(x[:, 0], p / AXIS.volume,
                       {k: π / AXIS.volume for k, π in laws.items()}, sigma)  # fmt: skip
    chain = run_closed_form_chain(LINE, 0.4, 2.0, 4000, 400)
    π = solve(AXIS, *make_step(LINE, x, 0.4, 1.0, 2.0))
    merged = [_coarsen(law) for law in (π, AXIS.histogram(chain))]
    results["grid against a chain of 800,000 samples, σ = 0.4"] = total_variation(*merged)
    return results


def run_closed_form_chain(
    law: GaussianMixture, sigma: float, ratio: float, walkers: int, steps: int
) -> Doubles:
    """Run X' ~ N(r(X), cC(X)) from draws of the law; return the second half of the steps."""
    rng = np.random.default_rng(4)
    x = law.sample(walkers, rng)
    kept = []
    for step in range(steps):
        r, C = law.posterior(x, np.full(x.shape[1], sigma))
        λ, U = np.linalg.eigh(C)
        ε = rng.standard_normal(x.shape)
        x = r + np.einsum("nij,nj->ni", U, np.sqrt(ratio * np.maximum(λ, 0)) * ε)
        if step >= steps // 2:
            kept.append(x)
    return np.concatenate(kept)


def solve_in_the_plane() -> dict[str, Any]:
    """Compare the grid's π with a long chain and with the data, for a mixture and the spiral."""
    results = {}
    pictures = {}
    for name, law, grid, sigma, walkers in (
        ("mixture", PLANE, SQUARE, 0.4, 2000),
        ("spiral", make_spiral_mixture(), SPIRAL_BOX, 0.15, 800),
    ):
        r, C = law.posterior(grid.centres(), np.full(2, sigma))
        π = solve(grid, r, 2 * C + 1e-6 * np.eye(2))
        chain = run_closed_form_chain(law, sigma, 2.0, walkers, 400)
        histogram, p = grid.histogram(chain), compute_masses(law, grid)
        merged = [grid.merge(a) for a in (π, histogram, p)]
        smoothed = grid.merge(compute_masses(law, grid, sigma))
        results[name] = {
            "σ": sigma,
            "cells": len(r),
            "samples": len(chain),
            "total variation, chain": total_variation(merged[0], merged[1]),
            "total variation, data": total_variation(merged[0], merged[2]),
            "smoothed data": total_variation(smoothed, merged[2]),
        }
        pictures[name] = {
            key: value.reshape(grid.cells).T
            for key, value in (("p", p), ("π, by the grid", π), ("π, by a chain", histogram))
        }
    plots.draw_plane(pictures)
    return results


# --- consistency ---------------------------------------------------------------------------------


def measure_consistency(sigma: float = 0.4) -> dict[str, Any]:
    """Measure errors over δ from the grid's π, so without Monte Carlo noise."""
    x, p = AXIS.centres(), compute_masses(LINE, AXIS)
    deltas = np.geomspace(0.1, 3, 20)
    results: dict[str, Any] = {"σ": sigma, "δ": deltas.tolist()}
    for step, ratio in ((1.0, 2.0), (0.1, 2.0), (0.01, 2.0), (0.01, 1.0)):
        mu, Σ = make_step(LINE, x, sigma, step, ratio)
        π = solve(AXIS, mu, Σ)
        centres = π > 1e-3 * π.max()
        errors, ratios = [], []
        for delta in deltas:
            w = (np.abs(x - x[:, 0]) < delta) * π
            w = (w / np.maximum(w.sum(1, keepdims=True), 1e-300))[centres]  # (x₀, x)
            m = w @ x[:, 0]
            C = w @ x[:, 0] ** 2 - m**2
            away = w @ mu[:, 0] - m
            around = w @ mu[:, 0] ** 2 - 2 * m * (w @ mu[:, 0]) + m**2
            weight = π[centres] / π[centres].sum()
            errors.append(float(weight @ (np.abs(away) / np.sqrt(C))))
            ratios.append(float(weight @ (around / C)))
        results[f"η = {step:g}, Σ = {ratio:g}ηC"] = {
            "mean error": errors,
            "covariance ratio": ratios,
            "total variation from p": total_variation(π, p),
        }
    return results


# --- models --------------------------------------------------------------------------------------


def measure_models(data: str | None) -> dict[str, Any]:
    """Run `claims_figures` on every model in models/."""
    results = {}
    for folder in sorted(ROOT.glob("models/*/1")):
        model = Model.open(folder)
        m = model.manifest
        source = m.recipe["data"]["source"]
        path = str(locate_file(source, data)) if source in KNOWN_SETS else None
        options = data_options(m.recipe["data"], path)
        dataset = load(options, None)
        rows = rows_for(dataset, split_again(dataset, options, m), m.normaliser, read_split(m))
        results[m.name] = claims_figures(model, rows)
        print(f"{m.name} done", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the paper's claims.")
    parser.add_argument("what", nargs="*", choices=["laws", "models"], default=["laws"])
    parser.add_argument("--data", help="the folder of mnist-train.npz and frey-faces.npz "
                        "(default: $LOCALMOMENTS_DATA)")  # fmt: skip
    parser.add_argument("--steps", type=int, default=3000, help="of every small network")
    args = parser.parse_args()
    torch.set_num_threads(1)
    body = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if "laws" in args.what:
        body |= {
            "optima": compare_optima(),
            "windows": compare_windows(),
            "operator": solve_on_the_line(),
        }
        body |= {"plane": solve_in_the_plane(), "consistency": measure_consistency()}
        body["networks"] = compare_networks(args.steps)
    if "models" in args.what:
        body["models"] = measure_models(args.data)
    RESULTS.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    plots.draw_curves(body)


if __name__ == "__main__":
    main()
