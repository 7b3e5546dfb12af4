"""The plots of docs/theory.md."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from localmoments.arrays import Doubles

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter

IMAGES = Path(__file__).parent.parent / "docs" / "images"


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(IMAGES / f"theory-{name}.png", dpi=80)
    plt.close(figure)


def line(x: Doubles, p: Doubles, laws: Mapping[str, Doubles], sigma: float) -> None:
    """Densities of the data and of the chains."""
    figure, ax = plt.subplots(figsize=(8, 4))
    ax.fill_between(x, p, color="0.85", label="data, p")
    for (name, law), style in zip(laws.items(), ("-", "-", "--", "--", "--"), strict=True):
        ax.plot(x, law, style, label=f"π: {name}")
    ax.set(xlim=(-3, 4), xlabel="x", ylabel="density", title=f"Stationary laws at σ = {sigma}")
    ax.legend(fontsize=8)
    _save(figure, "operator-line")


def plane(pictures: Mapping[str, Mapping[str, Doubles]]) -> None:
    """Laws in two columns."""
    figure, axes = plt.subplots(len(pictures), 3, figsize=(8, 5.4))
    for row, (name, laws) in zip(axes, pictures.items(), strict=True):
        for ax, (title, law) in zip(row, laws.items(), strict=True):
            ax.imshow(np.sqrt(law), origin="lower", cmap="magma", interpolation="nearest")
            ax.set(title=f"{name}: {title}", xticks=[], yticks=[])
    _save(figure, "operator-plane")


def curves(body: Mapping[str, Any]) -> None:
    """Everything that is a curve."""
    if "optima" in body:
        _agreement(body["optima"], body["networks"])
        _windows(body["windows"])
        _consistency(body["consistency"])
    if "models" in body:
        _calibration(body["models"])


def _agreement(optima: Mapping[str, Any], networks: Mapping[str, Any]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
    σ = np.array([float(s) for s in optima])
    for ax, key in zip(axes, ("r", "J"), strict=True):
        ax.loglog(σ, [f[key] for f in optima.values()], "o-", label="optima")
        some = [float(s) for s in networks]
        ax.loglog(some, [f[key] for f in networks.values()], "s--", label="trained networks")
        first = list(optima.values())[-1][key]
        ax.loglog(σ, first * (σ / σ[-1]) ** 4, ":", color="0.5", label="slope 4")
        ax.set(xlabel="σ", title=f"|{key} of the DAE - {key} of the RCAE|, rms")
        ax.xaxis.set_minor_formatter(NullFormatter())  # labels would overlap
        ax.legend(fontsize=8)
    _save(figure, "dae-rcae")


def _windows(found: Mapping[str, Any]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
    titles = ("error of the mean, in parts of |r - x|", "variance in the ball / σ²J")
    for i, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        ax.loglog(found["δ/σ"], [v[i] for v in found["narrow"]], label="r = m₀, αJ = C₀")
        ax.loglog(found["δ/σ"], [v[i] for v in found["wide"]],
                  label="r = (I - J₀)m₀ + J₀x₀, J₀ = C₀(αI + C₀)⁻¹")  # fmt: skip
        ax.axvline(3**0.5, color="0.6", ls=":")
        ax.set(xlabel="δ/σ", title=title)
    axes[1].axhline(1, color="0.6", ls=":")
    axes[0].legend(fontsize=8)
    _save(figure, "windows")


def _consistency(found: Mapping[str, Any]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
    for ax, key in zip(axes, ("mean error", "covariance ratio"), strict=True):
        for name, curve in found.items():
            if isinstance(curve, Mapping):
                label = f"{name}: TV from p {curve['total variation from p']:.2f}"
                ax.semilogx(found["δ"], curve[key], label=label)
        ax.set(xlabel="δ", title=key)
    axes[0].set_yscale("log")
    axes[1].set_ylim(0, 3)
    axes[1].axhline(1, color="0.6", ls=":")
    axes[1].legend(fontsize=7)
    _save(figure, "consistency")


def _calibration(models: Mapping[str, Any]) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
    for ax, key in zip(axes, ("trace ratio", "z²"), strict=True):
        for name, figures in models.items():
            if figures["covariance scale"] == "absolute":
                levels = figures["calibration"]
                ax.errorbar([float(s) for s in levels], [f[key] for f in levels.values()],
                            [f[f"{key}, error"] for f in levels.values()], fmt="o-", ms=4,
                            label=name)  # fmt: skip
        ax.axhline(1, color="0.6", ls=":")
        ax.set(xscale="log", yscale="log", xlabel="σ", title=key)
    axes[0].legend(fontsize=8)
    _save(figure, "calibration")
