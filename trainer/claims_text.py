"""The figures of trainer.evaluate.claims as tables and words, for the card and for the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainer.markdown import number, pairs, table

CALIBRATION = (
    "**Calibration** of σ²J on corrupted test rows x̃ = x + σε, with e = x − r(x̃): E‖e‖² / σ² tr J, "
    "and z² = (uᵢᵀe)² / σ²λᵢ along the leading tangents. Both are 1 for an exact posterior; above "
    "1 the model claims too little spread."
)
RELATIVE = (
    "The covariances of this model are known up to a scale only: its trace ratio is that missing "
    "scale at this noise level, and says nothing about calibration."
)
NEIGHBOURS = (
    "**Neighbours**: r(x̃) and σ²J(x̃) against the moments of training rows in a window around x̃. "
    "The narrow windows (Gaussian of width σ, ball of radius σ√(d + 2)) are compared as they are; "
    "the wide ones hold about 100 rows and are corrected for their width. Points with fewer than "
    "10 effective neighbours are left out. Errors of the mean are in parts of the data's "
    "spread; *captured* is the variance of the neighbours along the model's tangents, in parts of "
    "the most that as many directions can have; *other* is the same with the model's answer at "
    "another point, for comparison."
)
CONSISTENCY = (
    "**Consistency** of the chain `moment`, x' ~ N(μ(x), Σ(x)): local moments of its samples in "
    "balls of radius δ against those of μ, and against the data's. The paper claims a mean error "
    "of 0 and a covariance ratio of 1 for steps ‖μ − x‖ and ‖x' − μ‖ far below δ."
)


def claims_text(figures: Mapping[str, Any]) -> Iterator[str]:
    """The figures as paragraphs of Markdown."""
    yield "### The paper's claims"
    levels = figures["calibration"]
    lines = [
        [level, _bounded(f, "trace ratio"), _bounded(f, "z²"), number(f["z², first tangent"])]
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
        [[name, *(number(f.get(head, "")) for head in heads)] for name, f in windows.items()],
    )
    yield NEIGHBOURS
    if "consistency" in figures:
        yield from _consistency_text(figures["consistency"])


def _consistency_text(figures: Mapping[str, Any]) -> Iterator[str]:
    if "chain" in figures:
        yield f"Consistency: the chain `moment` {figures['chain']}."
        return
    balls = {name: f for name, f in figures.items() if name.startswith("ball")}
    names = list(next(iter(balls.values())))
    yield table(["", *balls], [[name, *(number(f[name]) for f in balls.values())]
                               for name in names])  # fmt: skip
    rest = {k: v for k, v in figures.items() if not isinstance(v, Mapping)}
    grid = {f"operator equation, {k}": v for k, v in figures.get("operator equation", {}).items()}
    yield pairs(rest | grid)
    yield CONSISTENCY


def _bounded(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures[name]:.3f} ± {figures[f'{name}, error']:.3f}"
