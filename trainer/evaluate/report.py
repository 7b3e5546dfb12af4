"""The figures of a manifest as Markdown, for the card and for the terminal."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from localmoments.artefact import Manifest
from trainer.config import RECIPES, read_recipe

Figures = Mapping[str, Any]

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
DISTANCES = (
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
    "The default scale of each kernel was chosen on validation rows, not on test rows. Chains "
    "started from noise at every scale tried, and their samples were compared with real rows "
    "(images by kernel distance, tables by sliced Wasserstein distance). The largest scale within "
    "5 % of the lowest distance was chosen. Scales are rejected if their chains diverge, lose "
    "classes or, in tables, leave the data (density below 0.8)."
)
TUNED = (
    "The settings of this recipe were compared on held-out rows that include test rows "
    "(`docs/experiments.md`), so the figures are slightly optimistic."
)
CALIBRATION = (
    "**Calibration** of σ²J on corrupted test rows x̃ = x + σε, with e = x − r(x̃): E‖e‖² / σ² tr J, "
    "and z² = (uᵢᵀe)² / σ²λᵢ along the leading tangents. Both are 1 for an exact posterior; above "
    "1 the model claims too little variance."
)
RELATIVE = (
    "The covariances of this model are known up to one factor only. Its trace ratio is the "
    "missing factor at this noise level and says nothing about calibration."
)
NEIGHBOURS = (
    "**Neighbours**: r(x̃) and σ²J(x̃) against the moments of training rows in a window around x̃. "
    "The narrow windows (Gaussian of width σ, ball of radius σ√(d + 2)) are compared as they are; "
    "the wide ones hold about 100 rows and are corrected for their width. Points with fewer than "
    "10 effective neighbours are left out. Errors of the mean are relative to the data's spread. "
    "*Captured* is the variance of the neighbours along the model's tangents, as a fraction of the "
    "most that the same number of directions can have. *Other point* repeats the comparison with "
    "the model's answer at another point, as a baseline."
)
CONSISTENCY = (
    "**Consistency** of the chain `moment`, x' ~ N(μ(x), Σ(x)): local moments of its samples in "
    "balls of radius δ against those of μ, and against the data's. The paper claims a mean error "
    "of 0 and a covariance ratio of 1 for steps ‖μ − x‖ and ‖x' − μ‖ far below δ."
)
SAMPLE_FIGURES = {  # the lines of the table of samples, with their labels
    "log-likelihood": "log-likelihood, nats",
    "bandwidth": "bandwidth",
    "density": "density",
    "coverage": "coverage",
    "kernel distance": "kernel distance",
    "Fréchet distance": "Fréchet distance",
    "class entropy": "class entropy",
    "sliced Wasserstein": "sliced Wasserstein",
    "samples": "number of samples",
}
OPTIONS = "options"  # of the `evaluate` that computed the figures; absent if `fit` did
SECTIONS = (  # figures with a section or a sentence of their own
    OPTIONS, "samples", "mixing", "nearest training row", "exact draws", "scales", "test rows",
    "split", "comparison", "features", "kernel", "scale", "emission", "claims",
)  # fmt: skip


def figures_text(manifest: Manifest) -> str:
    """Everything that was measured, the most important first."""
    figures = manifest.evaluation
    if not figures:
        return "Not evaluated yet. Run `localmoments evaluate` to add figures."
    return "\n\n".join(_sections(manifest, figures))


def _sections(manifest: Manifest, figures: Figures) -> Iterator[str]:
    if "test rows" in figures:
        yield f"Evaluated on {figures['test rows']}."
        if is_shipped(manifest):
            yield TUNED
    if isinstance(figures.get("samples"), Mapping):
        yield from _samples_section(manifest, figures)
    elif "samples" in figures:
        yield f"No samples: {figures['samples']}."
    if isinstance(figures.get("exact draws"), Mapping):
        yield from ("### Against the known law", format_pairs(figures["exact draws"]), EXACT)
    elif "exact draws" in figures:
        yield f"No samples to compare with the known law: {figures['exact draws']}."
    if "mixing" in figures:
        yield from _mixing_section(figures["mixing"])
    if "nearest training row" in figures:
        yield from _copies_section(figures["nearest training row"])
    if "scales" in figures:
        yield from _scales_section(figures["scales"])
    if "claims" in figures:
        yield from claims_sections(figures["claims"])
    rest = {k: v for k, v in figures.items() if k not in SECTIONS}
    if len(rest) < len(figures):
        yield "### Rows and kernels"
    yield format_pairs(dict(_flatten("", rest)))


def _samples_section(manifest: Manifest, figures: Figures) -> Iterator[str]:
    sets = figures["samples"]
    names = [name for name in SAMPLE_FIGURES if any(name in x for x in sets.values())]
    yield "### Samples"
    compared = figures.get("comparison")
    yield (
        f"Kernel `{figures['kernel']}` at scale {format_number(figures['scale'])}; chains start "
        f"from noise. Features are {figures['features']}."
        + (f" Sets are compared in {compared}." if compared else "")
    )
    lines = [[SAMPLE_FIGURES[name], *(_cell(x, name) for x in sets.values())] for name in names]
    yield table(["", *sets], lines)
    if REAL in sets:
        classified = "class entropy" in names and "training rows" in sets
        yield f"{ERRORS_NOTE} {REAL_NOTE}" + (TRAINED_NOTE if classified else "")
    if "log-likelihood" in names:
        yield PARZEN
        if manifest.data.get("name") == "mnist":
            yield PUBLISHED
    yield DISTANCES


def is_shipped(manifest: Manifest) -> bool:
    """Whether the model has the name and the data of a recipe that is part of the trainer.

    The settings of such a recipe were tuned on this data.
    """
    path = RECIPES / f"{manifest.name}.toml"
    source = manifest.recipe.get("data", {}).get("source")
    return path.exists() and read_recipe(path)["data"]["source"] == source


def _cell(figures: Figures, name: str) -> str:
    """`value ± error`; figures of older artefacts have an error for the log-likelihood only."""
    if name not in figures:
        return ""
    old = {"log-likelihood": figures.get("standard error")}
    return number_with_error(figures[name], figures.get("errors", old).get(name))


def _mixing_section(figures: Figures) -> Iterator[str]:
    functions = {k: v for k, v in figures.items() if isinstance(v, Mapping)}
    columns = list(next(iter(functions.values()), {}))
    yield f"### Mixing of {figures['chains']} chains over {figures['steps']:,} steps"
    if functions:
        lines = [[k, *(format_number(v.get(c, "")) for c in columns)] for k, v in functions.items()]
        yield table(["", *columns], lines)
    yield format_pairs({k: v for k, v in figures.items()
                 if k not in functions and k not in ("steps", "chains")})  # fmt: skip
    yield MIXING


def _copies_section(figures: Figures) -> Iterator[str]:
    sets = {k: v for k, v in figures.items() if isinstance(v, Mapping)}
    columns = list(next(iter(sets.values())))
    yield "### Copies of training rows"
    lines = [[k, *(format_number(v[c]) for c in columns)] for k, v in sets.items()]
    yield table(["distance, quantile", *columns], lines)
    yield format_pairs({k: v for k, v in figures.items() if k not in sets})
    yield COPIES


def _scales_section(figures: Figures) -> Iterator[str]:
    yield "### Scales"
    lines = []
    for kernel, found in figures.items():
        tried = ", ".join(f"{s}: {format_number(v)}" for s, v in found["tried"].items())
        tried = tried.replace("(refused)", "(rejected)")  # older artefacts say "refused"
        lines.append(
            [kernel, format_number(found["calibrated"]), format_number(found["chosen"]), tried]
        )
    yield table(["kernel", "calibrated", "chosen", "scales tried: distance"], lines)
    yield SCALES


def claims_sections(figures: Figures) -> Iterator[str]:
    """The figures of `run.claims_figures` as paragraphs."""
    yield "### The paper's claims"
    levels = figures["calibration"]
    lines = [
        [
            level,
            _with_error(f, "trace ratio"),
            _with_error(f, "z²"),
            format_number(f["z², first tangent"]),
        ]
        for level, f in levels.items()
    ]
    yield table(["σ", "trace ratio", "z²", "z², first tangent"], lines)
    yield CALIBRATION
    if figures["covariance scale"] == "relative":
        yield RELATIVE
    near = figures["neighbours"]
    heads = ["points compared", "neighbours", "width", "mean error", "mean error, other point",
             "tangent angle", "captured variance", "captured variance, other point",
             "trace ratio"]  # fmt: skip
    windows = {name: f for name, f in near.items() if isinstance(f, Mapping)}
    yield table(
        [f"of {near['points']} points", *heads],
        [
            [name, *(format_number(f.get(head, "")) for head in heads)]
            for name, f in windows.items()
        ],
    )
    yield NEIGHBOURS
    if "consistency" in figures:
        yield from _consistency_section(figures["consistency"])


def _consistency_section(figures: Figures) -> Iterator[str]:
    if "chain" in figures:
        yield f"Consistency: the chain `moment` {figures['chain']}."
        return
    balls = {name: f for name, f in figures.items() if name.startswith("ball")}
    names = list(next(iter(balls.values())))
    yield table(["", *balls], [[name, *(format_number(f[name]) for f in balls.values())]
                               for name in names])  # fmt: skip
    rest = {k: v for k, v in figures.items() if not isinstance(v, Mapping)}
    grid = {f"operator equation, {k}": v for k, v in figures.get("operator equation", {}).items()}
    yield format_pairs(rest | grid)
    yield CONSISTENCY


def _with_error(figures: Figures, name: str) -> str:
    return f"{figures[name]:.3f} ± {figures[f'{name}, error']:.3f}"


def number_with_error(value: float, error: float | None) -> str:
    """A value with as many digits as its error supports: `308.3 ± 2.3`, `0.0326 ± 0.0015`."""
    if not error or not math.isfinite(error):
        return format_number(value)
    digits = min(6, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _flatten(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [(prefix, value)]
    rows = []
    for key, inner in value.items():
        rows += _flatten(f"{prefix}, {key}" if prefix else str(key), inner)
    return rows


def format_number(value: Any) -> str:
    """Four significant digits of a float; anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_pairs(rows: Mapping[str, Any]) -> str:
    """A table of two columns without a heading."""
    return table(["", ""], [[key, format_number(value)] for key, value in rows.items()])


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |" if any(cells) else "|" + " |" * len(cells)

    return "\n".join([row(heads), "|" + "---|" * len(heads), *(row(line) for line in lines)])
