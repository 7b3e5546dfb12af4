"""Compare every exported graph with PyTorch, for the architecture of every recipe.

    python benchmarks/parity.py [RECIPE ...]

Builds the auto-encoder of each shipped recipe at full size with random weights, exports all graphs
and writes the largest difference over batches of 1 to 1000 rows to benchmarks/results/parity.json.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from measure import describe_machine
from safetensors.torch import save_file

from localmoments.artefact import WEIGHTS
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.chain_kernels import make_kernels
from trainer.config import RECIPES, Recipe, make_recipe, read_recipe
from trainer.graphs import (
    CHECKED_BATCHES,
    TOLERANCE,
    check_parity,
    kernel_graph,
    model_graphs,
    write_graph,
)

RESULTS = Path(__file__).parent / "results"
TABLES = ("gaussian", "mixture", "spiral")  # unbounded data, hence a linear decoder
TFD_DIMS = 48 * 48


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare exported graphs with PyTorch.")
    parser.add_argument("recipes", nargs="*", help="names of recipes (default: all)")
    args = parser.parse_args()
    names = args.recipes or sorted(p.stem for p in RECIPES.glob("*.toml"))
    worst = {
        name: measure_parity(make_recipe(read_recipe(RECIPES / f"{name}.toml"))) for name in names
    }
    for name, graphs in worst.items():
        graph = max(graphs, key=lambda g: graphs[g])
        print(f"{name:15} {len(graphs)} graphs, largest difference {graphs[graph]:.1e} ({graph})")
    body = {
        "tolerance": TOLERANCE,
        "batches": CHECKED_BATCHES,
        "worst": worst,
        "machine": describe_machine(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "parity.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return 0


def measure_parity(recipe: Recipe) -> dict[str, float]:
    """Return the largest difference of each graph of a recipe's model."""
    torch.manual_seed(0)
    ae = AutoEncoder(make_architecture(recipe)).eval()
    for p in ae.parameters():  # residual blocks start at zero and would not be tested
        p.data += 0.1 * torch.randn_like(p) / max(1, p.shape[-1]) ** 0.5
    s = recipe.sampling
    lowest = recipe.criterion.levels[0]
    kernels = make_kernels(ae, recipe.sigma, s.root, s.root_degree, s.gain, s.halvings, lowest)
    specs = model_graphs(ae) | {name: kernel_graph(k) for name, k in kernels.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_file({k: v.contiguous() for k, v in ae.state_dict().items()}, folder / WEIGHTS)
        return {g: check_parity(g, spec, write_graph(g, spec, folder)) for g, spec in specs.items()}


def make_architecture(recipe: Recipe) -> Architecture:
    m = recipe.model
    decoder = "linear" if recipe.data.source in TABLES else "sigmoid"
    dims = m.dims or TFD_DIMS
    return Architecture(dims, m.hidden, m.unit, decoder, m.tied, m.blocks, m.conditioned)


if __name__ == "__main__":
    sys.exit(main())
