"""The figures of a manifest as tables and explanations, for the card and for the terminal."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localmoments.artefact import Manifest
from trainer.claims_text import claims_text
from trainer.markdown import number, pairs, table

Figures = Mapping[str, Any]

RECIPES = Path(__file__).parent / "recipes"
REAL = "real against real"  # two halves of the test rows, among the sets of samples

PUBLISHED = (
    "Published log-likelihoods for MNIST with the same estimator, on the official test set: CAE-2 "
    "121, DBN 138, deep GSN 214, GAN 225, adversarial auto-encoder 340."
)
PARZEN = (
    "**Log-likelihood**: mean over the test rows, in nats, of a density with a Gaussian window on "
    "every sample (Parzen). Pixels are in [0, 1]. The bandwidth is chosen on validation rows. The "
    "figure favours blur: k-means centres score higher than real rows, so do not rank models by it "
    "alone. It also grows with the number of samples."
)
READING = (
    "**Density**: how many samples lie near real rows. New real rows have 1. A value above 1 "
    "means that samples keep to the middle of the data. **Coverage**: the part of real rows with "
    "a sample nearby. New real rows have about 0.97. **Kernel distance** (squared MMD of features "
    "with a cubic kernel) and **Fréchet distance** (between the Gaussians of the features): 0 "
    "means equal, lower is better. The Fréchet distance and **sliced Wasserstein** (mean distance "
    "of projections of the rows themselves) are above 0 even for real rows, because sets are "
    "finite: compare with the column of real rows. **Class entropy**: 1 if all classes are drawn "
    "equally often."
)
ERRORS_NOTE = (
    "± is one standard error. It includes what another run of the chains and other test rows would "
    "change."
)
REAL_NOTE = (
    "*Real against real* compares two random halves of the test rows. Nothing was trained on "
    "either half, so a perfect model would score the same in every figure but the log-likelihood, "
    "which has fewer windows here."
)
TRAINED_NOTE = (
    " The classifier that gives the features was trained on the *training rows*, so their column "
    "is not such a reference."
)
MIXING = (
    "**Split R-hat**: 1 if chains from different noise agree; below 1.01 is the usual requirement. "
    "**ESS**: how many independent draws all steps of all chains are worth, for the middle (bulk) "
    "and for the 5 % and 95 % quantiles (tail). **Burn-in**: the first step from which the walkers "
    "cannot be told from the last third of the run, by the kernel distance of their features."
)
COPIES = (
    "Distances from samples, and from test rows, to the nearest training row. A row counts as a "
    "copy if its nearest training row is less than a third as far away as the second nearest."
)
EXACT = (
    "Samples of independent chains from noise compared with exact draws from the known law, and "
    "exact draws compared with each other, in standard deviations. A ratio of 1 means that the "
    "samples cannot be told from exact draws."
)
SCALES = (
    "The default scale of each kernel was chosen on validation rows, not on test rows: chains "
    "from noise at every scale tried, compared with real rows (images by kernel distance, tables "
    "by sliced Wasserstein distance). The largest scale within 5 % of the lowest distance is "
    "taken. Scales are refused if their chains diverge, lose classes or, in tables, leave the "
    "data (density below 0.8)."
)
COMPARED = (
    "The settings of this recipe were compared on held-out rows, test rows among them "
    "(`docs/experiments.md`), so the figures are slightly optimistic."
)
ROWS = {  # a line of the table of samples, and how its numbers are written
    "log-likelihood": "log-likelihood",
    "bandwidth": "bandwidth",
    "density": "density",
    "coverage": "coverage",
    "kernel distance": "kernel distance",
    "Fréchet distance": "Fréchet distance",
    "class entropy": "class entropy",
    "sliced Wasserstein": "sliced Wasserstein",
    "samples": "number of samples",
}
OPTIONS = "options"  # of the `evaluate` that made the figures; not there where `fit` made them
OWN = (
    OPTIONS, "samples", "mixing", "nearest training row", "exact draws", "scales", "test rows",
    "split", "comparison", "features", "kernel", "scale", "emission", "claims",
)  # fmt: skip


def figures_text(manifest: Manifest) -> str:
    """Everything that was measured, most telling first."""
    figures = manifest.evaluation
    if not figures:
        return "Not evaluated yet: `python -m trainer evaluate` fills this in."
    return "\n\n".join(_parts(manifest, figures))


def _parts(manifest: Manifest, figures: Figures) -> Iterator[str]:
    if "test rows" in figures:
        yield f"Judged on {figures['test rows']}."
        if is_shipped(manifest):
            yield COMPARED
    if isinstance(figures.get("samples"), Mapping):
        yield from _samples(manifest, figures)
    elif "samples" in figures:
        yield f"No samples: {figures['samples']}."
    if isinstance(figures.get("exact draws"), Mapping):
        yield from ("### Against the known law", pairs(figures["exact draws"]), EXACT)
    elif "exact draws" in figures:
        yield f"No samples to compare with the known law: {figures['exact draws']}."
    if "mixing" in figures:
        yield from _mixing(figures["mixing"])
    if "nearest training row" in figures:
        yield from _copies(figures["nearest training row"])
    if "scales" in figures:
        yield from _scales(figures["scales"])
    if "claims" in figures:
        yield from claims_text(figures["claims"])
    rest = {k: v for k, v in figures.items() if k not in OWN}
    if len(rest) < len(figures):
        yield "### Rows and kernels"
    yield pairs(dict(_flattened("", rest)))


def _samples(manifest: Manifest, figures: Figures) -> Iterator[str]:
    sets = figures["samples"]
    names = [name for name in ROWS if any(name in found for found in sets.values())]
    yield "### Samples"
    compared = figures.get("comparison")
    yield (
        f"Kernel `{figures['kernel']}` at scale {number(figures['scale'])}; chains start from "
        f"noise. Features are {figures['features']}."
        + (f" Sets are compared in {compared}." if compared else "")
    )
    lines = [[ROWS[name], *(_cell(found, name) for found in sets.values())] for name in names]
    yield table(["", *sets], lines)
    if REAL in sets:
        classified = "class entropy" in names and "training rows" in sets
        yield f"{ERRORS_NOTE} {REAL_NOTE}" + (TRAINED_NOTE if classified else "")
    if "log-likelihood" in names:
        yield PARZEN
        if manifest.data.get("name") == "mnist":
            yield PUBLISHED
    yield READING


def is_shipped(manifest: Manifest) -> bool:
    """Whether the recipe comes with the trainer; its settings were then tuned on its data."""
    return (RECIPES / f"{manifest.name}.toml").exists()


def _cell(found: Figures, name: str) -> str:
    """`value ± error`; figures of older artefacts have an error for the log-likelihood only."""
    if name not in found:
        return ""
    old = {"log-likelihood": found.get("standard error")}
    return number_with_error(found[name], found.get("errors", old).get(name))


def _mixing(figures: Figures) -> Iterator[str]:
    functions = {k: v for k, v in figures.items() if isinstance(v, Mapping)}
    columns = list(next(iter(functions.values()), {}))
    yield f"### Mixing of {figures['chains']} chains over {figures['steps']:,} steps"
    if functions:
        lines = [[k, *(number(v.get(c, "")) for c in columns)] for k, v in functions.items()]
        yield table(["", *columns], lines)
    yield pairs({k: v for k, v in figures.items()
                 if k not in functions and k not in ("steps", "chains")})  # fmt: skip
    yield MIXING


def _copies(figures: Figures) -> Iterator[str]:
    sets = {k: v for k, v in figures.items() if isinstance(v, Mapping)}
    columns = list(next(iter(sets.values())))
    yield "### Copies of training rows"
    yield table(["distance, quantile", *columns],
                [[k, *(number(v[c]) for c in columns)] for k, v in sets.items()])  # fmt: skip
    yield pairs({k: v for k, v in figures.items() if k not in sets})
    yield COPIES


def _scales(figures: Figures) -> Iterator[str]:
    yield "### Scales"
    lines = []
    for kernel, found in figures.items():
        tried = ", ".join(f"{s}: {number(v)}" for s, v in found["tried"].items())
        lines.append([kernel, number(found["calibrated"]), number(found["chosen"]), tried])
    yield table(["kernel", "calibrated", "chosen", "scales tried: distance"], lines)
    yield SCALES


def number_with_error(value: float, error: float | None) -> str:
    """A value with as many digits as its error supports: `308.3 ± 2.3`, `0.0326 ± 0.0015`."""
    if not error or not math.isfinite(error):
        return number(value)
    digits = min(6, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _flattened(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [(prefix, value)]
    rows = []
    for key, inner in value.items():
        rows += _flattened(f"{prefix}, {key}" if prefix else str(key), inner)
    return rows
