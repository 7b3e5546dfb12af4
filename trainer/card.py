"""card.md: what a model is, how it was trained, and how well it does, with plots.

The first sentence names every addition to the paper's criterion, so that nobody takes the figures
of such a model for a test of the paper.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from localmoments.artefact import Manifest
from trainer.autoencoder import Architecture
from trainer.covariance_roots import choose_root
from trainer.evaluate.chains import budget_for
from trainer.evaluate.report import OPTIONS, figures_text, format_pairs

KINDS = {
    "cae": "A contractive auto-encoder (eq. 1 of the paper)",
    "dae": "A denoising auto-encoder (eq. 2 of the paper)",
    "rcae": "An auto-encoder with a contractive reconstruction (eq. L_global of the paper)",
}
CAPTIONS = {
    "samples": "Samples of the default kernel; for images, one chain per row, left to right",
    "reconstructions": "Held-out rows, their corrupted versions, and the reconstructions",
    "tangents": "Leading tangents of the local covariance",
    "filters": "First-layer filters",
    "losses": "Loss curves",
    "classes": "Frequency of each class among samples and real rows",
    "mixing": "Mixing: autocorrelation, and the distance to equilibrium from noise",
    "bandwidths": "Log-likelihood of validation rows over the bandwidth",
    "neighbours": "Samples and the training images nearest to them",
    "distances": "Distance to the nearest training row, of samples and of held-out rows",
}


def format_card(manifest: Manifest, plots: Sequence[str]) -> str:
    """The text of the card, with the figures of the manifest.

    Args:
        plots: names of the PNG files to show, in order.
    """
    parts = [
        f"# {manifest.reference}",
        _first_sentence(manifest),
        format_pairs(_list_facts(manifest)),
        "## Figures",
        figures_text(manifest),
        *(_show_plot(manifest, name) for name in plots),
        "## Made by",
        _command(manifest),
        f"Trained {manifest.created} with {_list_libraries(manifest)}.",
    ]
    return "\n\n".join(parts) + "\n"


def _first_sentence(m: Manifest) -> str:
    added = _list_additions(m)
    if not added:
        return f"{KINDS[m.kind]}, trained on {_rows(m)}."
    return (
        f"{KINDS[m.kind]}, **trained with additions** ({'; '.join(added)}), on {_rows(m)}. "
        "Its figures are not figures of the paper's criterion alone."
    )


def _list_additions(m: Manifest) -> list[str]:
    """What the recipe adds to the paper's equation."""
    criterion, model = m.recipe.get("criterion", {}), m.recipe.get("model", {})
    added = []
    if _top(criterion.get("hidden_noise", 0.0)) > 0:
        added.append("the code is disturbed by the chain's own noise while training")
    if criterion.get("hidden_floor", 0.0) > 0:
        added.append("white noise on the code")
    if criterion.get("hidden_return", 0.0) > 0:
        added.append("a loss on samples that are encoded once more")
    if criterion.get("input_noise", 0.0) > 0:
        added.append("the criterion is measured at points with noise added")
    if criterion.get("walkback", 1) > 1:
        added.append("walkback")
    if model.get("conditioned", False):
        added.append("the network takes its noise level as an input")
    return added


def _top(level: Any) -> float:
    """The upper end of a level or range."""
    return float(max(level) if isinstance(level, list | tuple) else level)


def _rows(m: Manifest) -> str:
    shape = f"images of {'×'.join(map(str, m.image))}" if m.image else f"{m.input_dims} columns"
    return f"{m.data.get('training_rows', 0):,} rows of {m.data.get('name', 'data')} ({shape})"


def _list_facts(m: Manifest) -> dict[str, Any]:
    model = m.recipe.get("model", {})
    levels = m.noise_levels
    return {
        "hidden layers": " → ".join(map(str, model.get("hidden", ()))) + _describe_layers(model),
        "unit": model.get("unit", ""),
        "loss": m.loss,
        "noise level of chains, σ": f"{m.sigma:.4g}"
        + (f" (trained for {levels[0]:g} to {levels[1]:g})" if levels else ""),
        "noise level for clean rows": f"{m.moments_sigma:.4g}",
        "α": f"{m.alpha:.4g}" + _explain_alpha(m),
        **_describe_code_noise(m),
        "scale of covariances": "known" if m.covariance_scale == "absolute" else
        "unknown: covariances are right up to one factor, and there is no score",
        "default kernel": f"{m.default_kernel}, scale {m.kernels[m.default_kernel].scale:.4g}",
        "covariance of a draw": _describe_root(m),
        "rows held out": f"{m.data.get('held_out_rows', 0):,}",
        "data fingerprint": f"`{m.data.get('fingerprint', '')[:23]}`",
    }  # fmt: skip


def _describe_layers(model: Mapping[str, Any]) -> str:
    """Residual blocks and tied weights, as an addition to the list of layers."""
    blocks, tied = model.get("blocks", 0), model.get("tied", False)
    each = f", {blocks} residual block{'s' if blocks > 1 else ''} after each" if blocks else ""
    return each + (", tied weights" if tied else "")


def _describe_root(m: Manifest) -> str:
    """The covariance that `gibbs` and `moment` draw with in place of A (docs/decisions/0004)."""
    sampling, model = m.recipe.get("sampling", {}), m.recipe.get("model", {})
    architecture = Architecture(
        m.input_dims,
        tuple(model.get("hidden", (256,))),
        model.get("unit", "silu"),
        _find_decoder(m),
        model.get("tied", False),
        model.get("blocks", 0),
        model.get("conditioned", False),
    )
    root = choose_root(sampling.get("root", "auto"), architecture)
    if root == "jacobian":
        return f"γ²JJᵀ in place of A, γ = {sampling.get('gain', 1.0):g}"
    return f"A (root `{root}`)"


def _find_decoder(m: Manifest) -> str:
    """The unit of the output. For `auto` it follows from the normaliser, as in `inspect_rows`."""
    decoder = m.recipe.get("model", {}).get("decoder", "auto")
    if decoder != "auto":
        return str(decoder)
    if m.loss == "cross-entropy" or m.recipe.get("data", {}).get("normalise") == "unit":
        return "sigmoid"
    # Bytes are divided by 255, and values within [0, 1] stay as they are. Other data is
    # standardised.
    shift, scale = m.normaliser.shift, m.normaliser.scale
    is_unit = not shift.any() and bool(np.isin(scale, (1.0, 255.0)).all())
    return "sigmoid" if is_unit else "linear"


def _explain_alpha(m: Manifest) -> str:
    """The two parts of α: input noise contracts as well, so α is not the recipe's alone."""
    criterion = m.recipe.get("criterion", {})
    noise = criterion.get("input_noise", 0.0)
    if noise == 0:
        return ""
    return f" ({criterion['alpha']:.4g} + {noise:g}², trained at input noise {noise:g})"


def _describe_code_noise(m: Manifest) -> dict[str, str]:
    """The noise on the code in training, if there was any."""
    criterion = m.recipe.get("criterion", {})
    noise = criterion.get("hidden_noise", 0.0)
    if noise == 0:
        return {}
    parts = " to ".join(f"{level:g}" for level in (noise if isinstance(noise, list) else [noise]))
    floor, again = criterion.get("hidden_floor", 0.0), criterion.get("hidden_return", 0.0)
    text = f"{parts} of the code's spread, floor {floor:g}, return {again:g}"
    return {"noise on the code in training": text}


def _show_plot(m: Manifest, name: str) -> str:
    caption = CAPTIONS.get(name.removesuffix(".png"), name)
    if name == "samples.png":
        steps = budget_for(m.input_dims).burn_in
        caption += f". They start from noise, {steps:,} steps before the first one shown"
    return f"![{caption}]({name})\n\n*{caption}.*"


def _command(m: Manifest) -> str:
    return (
        "The recipe is in `manifest.json`. On the same data, machine and library versions it "
        "gives the same weights (use `--data PATH` if the data is elsewhere):\n\n"
        f"```sh\nlocalmoments fit models/{m.name}/{m.version}\n{_evaluation_command(m)}\n```"
    )


def _evaluation_command(m: Manifest) -> str:
    """The command that computed the figures above, or the one that computes more."""
    options = m.evaluation.get(OPTIONS)
    command = f"localmoments evaluate {m.reference} {options or ''}".rstrip()
    return f"{command}  # {'these' if options is not None else 'more'} figures and plots"


def _list_libraries(m: Manifest) -> str:
    return ", ".join(f"{k} {v}" for k, v in m.libraries.items())
