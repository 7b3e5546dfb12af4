"""Draw the plots of docs/theory.md."""

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
GUIDE = {"color": "0.6", "ls": ":"}


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(IMAGES / f"theory-{name}.png", dpi=80)
    plt.close(figure)


def _make_pair(xlabel: str, titles: tuple[str, str]) -> tuple[Any, Any]:
    """Return a figure with two axes side by side."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6))
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xlabel=xlabel, title=title)
    return figure, axes


def draw_line(x: Doubles, p: Doubles, laws: Mapping[str, Doubles], sigma: float) -> None:
    """Draw the densities of the data and of the chains' stationary laws in one dimension."""
    figure, ax = plt.subplots(figsize=(8, 4))
    ax.fill_between(x, p, color="0.85", label="data, p")
    for (name, law), style in zip(laws.items(), ("-", "-", "--", "--", "--"), strict=True):
        ax.plot(x, law, style, label=f"π: {name}")
    ax.set(xlim=(-3, 4), xlabel="x", ylabel="density", title=f"Stationary laws at σ = {sigma}")
    ax.legend(fontsize=8)
    _save(figure, "operator-line")


def draw_plane(pictures: Mapping[str, Mapping[str, Doubles]]) -> None:
    """Draw laws in two dimensions: one row of pictures for each data set."""
    figure, axes = plt.subplots(len(pictures), 3, figsize=(8, 5.4))
    for row, (name, laws) in zip(axes, pictures.items(), strict=True):
        for ax, (title, law) in zip(row, laws.items(), strict=True):
            ax.imshow(np.sqrt(law), origin="lower", cmap="magma", interpolation="nearest")
            ax.set(title=f"{name}: {title}", xticks=[], yticks=[])
    _save(figure, "operator-plane")


def draw_curves(body: Mapping[str, Any]) -> None:
    """Draw the plots that consist of curves, for the results that there are."""
    if "optima" in body:
        _draw_agreement(body["optima"], body["networks"])
        _draw_windows(body["windows"])
        _draw_consistency(body["consistency"])
    if "models" in body:
        _draw_calibration(body["models"])


def _draw_agreement(optima: Mapping[str, Any], networks: Mapping[str, Any]) -> None:
    titles = "|r of the DAE - r of the RCAE|, rms", "|J of the DAE - J of the RCAE|, rms"
    figure, axes = _make_pair("σ", titles)
    σ = np.array([float(s) for s in optima])
    for ax, key in zip(axes, ("r", "J"), strict=True):
        ax.loglog(σ, [f[key] for f in optima.values()], "o-", label="optima")
        trained = [float(s) for s in networks]
        ax.loglog(trained, [f[key] for f in networks.values()], "s--", label="trained networks")
        smallest = list(optima.values())[-1][key]
        ax.loglog(σ, smallest * (σ / σ[-1]) ** 4, ":", color="0.5", label="slope 4")
        ax.xaxis.set_minor_formatter(NullFormatter())  # labels would overlap
        ax.legend(fontsize=8)
    _save(figure, "dae-rcae")


def _draw_windows(windows: Mapping[str, Any]) -> None:
    titles = "error of the mean, in parts of |r - x|", "variance in the ball / σ²J"
    figure, axes = _make_pair("δ/σ", titles)
    labels = {"narrow": "r = m₀, αJ = C₀", "wide": "r = (I - J₀)m₀ + J₀x₀, J₀ = C₀(αI + C₀)⁻¹"}
    for i, ax in enumerate(axes):
        for name, label in labels.items():
            ax.loglog(windows["δ/σ"], [v[i] for v in windows[name]], label=label)
        ax.axvline(3**0.5, **GUIDE)
    axes[1].axhline(1, **GUIDE)
    axes[0].legend(fontsize=8)
    _save(figure, "windows")


def _draw_consistency(consistency: Mapping[str, Any]) -> None:
    keys = "mean error", "covariance ratio"
    figure, axes = _make_pair("δ", keys)
    for name, curve in consistency.items():
        if isinstance(curve, Mapping):
            label = f"{name}: TV from p {curve['total variation from p']:.2f}"
            for ax, key in zip(axes, keys, strict=True):
                ax.semilogx(consistency["δ"], curve[key], label=label)
    axes[0].set_yscale("log")
    axes[1].set_ylim(0, 3)
    axes[1].axhline(1, **GUIDE)
    axes[1].legend(fontsize=7)
    _save(figure, "consistency")


def _draw_calibration(models: Mapping[str, Any]) -> None:
    keys = "trace ratio", "z²"
    figure, axes = _make_pair("σ", keys)
    for ax, key in zip(axes, keys, strict=True):
        for name, figures in models.items():
            if figures["covariance scale"] == "absolute":
                levels = figures["calibration"]
                ax.errorbar([float(s) for s in levels], [f[key] for f in levels.values()],
                            [f[f"{key}, error"] for f in levels.values()], fmt="o-", ms=4,
                            label=name)  # fmt: skip
        ax.axhline(1, **GUIDE)
        ax.set(xscale="log", yscale="log")
    axes[0].legend(fontsize=8)
    _save(figure, "calibration")
