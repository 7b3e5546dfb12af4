"""The figures of a manifest as tables and words, for the card and for the terminal."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.core.manifest import Manifest

Figures = Mapping[str, Any]

PUBLISHED = (
    "Published for MNIST with the same estimator, on its official test set: CAE-2 121, DBN 138, "
    "deep GSN 214, GAN 225, adversarial auto-encoder 340."
)
PARZEN = (
    "**Log-likelihood**: of the test rows under a Gaussian window on every sample, in nats, with "
    "its standard error; pixels are in [0, 1], the bandwidth is chosen on validation rows. It "
    "favours blurred means: centres of k-means score higher than real rows, so read it with the "
    "lines below it."
)
READING = (
    "**Density**: how crowded real rows are with samples (1 for new real rows; above 1 for "
    "samples that keep to the middle). **Coverage**: the part of real rows that have a sample "
    "nearby (about 0.97 for new real rows). **Kernel distance**: squared distance between the "
    "features of samples and of test rows (0 on average for new real rows, lower is better). "
    "**Class entropy**: 1 where all classes are drawn equally often. **Sliced Wasserstein**: mean "
    "distance of projections, lower is better."
)
MIXING = (
    "**R-hat**: 1 where chains from different noise agree (below 1.01 is the usual bar). **ESS**: "
    "how many independent draws all steps of all chains are worth, for the middle and for the "
    "tails. **Burn-in**: steps from noise until the kernel distance stays at its final level."
)
COPIES = (
    "Distances from samples, and from held-out rows, to the nearest training row. A row looks like "
    "a copy where its nearest training row is less than a third as far as the second nearest."
)
EXACT = (
    "Samples of independent chains from noise against exact draws of the known law, beside as many "
    "exact draws against each other, in standard deviations. The ratio is 1 for the right law."
)
SCALES = (
    "Each kernel's default scale, found on validation rows: chains from noise at every scale "
    "tried, compared with real rows (images by kernel distance, tables by sliced Wasserstein). Of "
    "those within a twentieth of the lowest distance, the largest; scales whose chains leave all "
    "bounds, lose classes or, in tables, leave the data (density below 0.8) are refused."
)
ROWS = {  # a line of the table of samples, and how its numbers are written
    "log-likelihood": "log-likelihood",
    "bandwidth": "bandwidth",
    "density": "density",
    "coverage": "coverage",
    "kernel distance": "kernel distance",
    "class entropy": "class entropy",
    "sliced Wasserstein": "sliced Wasserstein",
    "samples": "number of samples",
}
OPTIONS = "options"  # of the `evaluate` that made the figures; not there where `fit` made them
OWN = (
    OPTIONS, "samples", "mixing", "nearest training row", "exact draws", "scales", "test rows",
    "features", "kernel", "scale", "emission",
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
    if isinstance(figures.get("samples"), Mapping):
        yield from _samples(manifest, figures)
    elif "samples" in figures:
        yield f"No samples: {figures['samples']}."
    if isinstance(figures.get("exact draws"), Mapping):
        yield from ("### Against the known law", pairs(figures["exact draws"]), EXACT)
    elif "exact draws" in figures:
        yield f"No samples to hold against the known law: {figures['exact draws']}."
    if "mixing" in figures:
        yield from _mixing(figures["mixing"])
    if "nearest training row" in figures:
        yield from _copies(figures["nearest training row"])
    if "scales" in figures:
        yield from _scales(figures["scales"])
    rest = {k: v for k, v in figures.items() if k not in OWN}
    if len(rest) < len(figures):
        yield "### Rows and kernels"
    yield pairs(dict(_flattened("", rest)))


def _samples(manifest: Manifest, figures: Figures) -> Iterator[str]:
    sets = figures["samples"]
    names = [name for name in ROWS if any(name in found for found in sets.values())]
    yield "### Samples"
    yield (
        f"Kernel `{figures['kernel']}` at scale {number(figures['scale'])}, from noise; features "
        f"are {figures['features']}."
    )
    lines = [[ROWS[name], *(_cell(found, name) for found in sets.values())] for name in names]
    yield table(["", *sets], lines)
    if "log-likelihood" in names:
        yield PARZEN
        if manifest.data.get("name") == "mnist":
            yield PUBLISHED
    yield READING


def _cell(found: Figures, name: str) -> str:
    if name not in found:
        return ""
    if name == "log-likelihood":
        return f"{found[name]:.1f} ± {found['standard error']:.1f}"
    return number(found[name])


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
    yield "### No copies"
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
    yield table(["kernel", "before", "chosen", "tried: distance"], lines)
    yield SCALES


def number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def number_with_error(value: float, error: float | None) -> str:
    """A value with as many digits as its error supports: `308.3 ± 2.3`, `0.0326 ± 0.0015`."""
    if not error or not math.isfinite(error):
        return number(value)
    digits = min(6, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def pairs(rows: Mapping[str, Any]) -> str:
    """Two columns, without a heading."""
    return table(["", ""], [[key, number(value)] for key, value in rows.items()])


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |" if any(cells) else "|" + " |" * len(cells)

    return "\n".join([row(heads), "|" + "---|" * len(heads), *(row(line) for line in lines)])


def _flattened(prefix: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        return [(prefix, value)]
    rows = []
    for key, inner in value.items():
        rows += _flattened(f"{prefix}, {key}" if prefix else str(key), inner)
    return rows
