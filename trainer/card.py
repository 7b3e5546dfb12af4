"""card.md: what a model is, how it was made, what it scored, in words and pictures."""

from collections.abc import Sequence
from typing import Any

from service.core.manifest import Manifest
from trainer.figures import OPTIONS, figures_text, pairs

KINDS = {
    "cae": "A contractive auto-encoder (eq. 1 of the paper)",
    "dae": "A denoising auto-encoder (eq. 2 of the paper)",
    "rcae": "An auto-encoder with a contractive reconstruction (eq. L_global of the paper)",
}
CAPTIONS = {
    "samples": "Samples, step by step",
    "reconstructions": "Held-out rows, as the model was given them, and reconstructed",
    "tangents": "Leading tangents of the local covariance",
    "filters": "First-layer filters",
    "losses": "Loss curves",
    "classes": "How often each class is drawn",
    "mixing": "How fast chains forget: autocorrelation, and the way from noise to the data",
    "bandwidths": "Log-likelihood of validation rows over the bandwidth",
    "neighbours": "Samples and the training images nearest to them",
    "distances": "Distance to the nearest training row, of samples and of held-out rows",
}


def card(manifest: Manifest, pictures: Sequence[str]) -> str:
    """The card's text; figures are those that the manifest holds."""
    parts = [
        f"# {manifest.reference}",
        f"{KINDS[manifest.kind]} of {_rows(manifest)}.",
        pairs(_facts(manifest)),
        "## Figures",
        figures_text(manifest),
        *(_picture(name) for name in pictures),
        "## Made by",
        _command(manifest),
        f"Trained {manifest.created} with {_libraries(manifest)}.",
    ]
    return "\n\n".join(parts) + "\n"


def _rows(m: Manifest) -> str:
    shape = f"images of {'×'.join(map(str, m.image))}" if m.image else f"{m.input_dims} columns"
    return f"{m.data.get('training_rows', 0):,} rows of {m.data.get('name', 'data')} ({shape})"


def _facts(m: Manifest) -> dict[str, Any]:
    model = m.recipe.get("model", {})
    levels = m.noise_levels
    return {
        "hidden layers": " → ".join(map(str, model.get("hidden", ()))),
        "unit": model.get("unit", ""),
        "loss": m.loss,
        "noise level σ": f"{m.sigma:.4g}"
        + (f" (of {levels[0]:g} to {levels[1]:g})" if levels else ""),
        "α": f"{m.alpha:.4g}" + _parts_of_alpha(m),
        **_noise_on_codes(m),
        "covariances are": "in the data's units" if m.covariance_scale == "absolute" else
        "right up to one scale",
        "default kernel": f"{m.default_kernel}, scale {m.kernels[m.default_kernel].scale:.4g}",
        "rows held out": f"{m.data.get('held_out_rows', 0):,}",
        "data fingerprint": f"`{m.data.get('fingerprint', '')[:23]}`",
    }  # fmt: skip


def _parts_of_alpha(m: Manifest) -> str:
    """Input noise is a contraction too, so α is the sum of both, and not the recipe's."""
    criterion = m.recipe.get("criterion", {})
    noise = criterion.get("input_noise", 0.0)
    if noise == 0:
        return ""
    return f" ({criterion['alpha']:.4g} + {noise:g}², trained at input noise {noise:g})"


def _noise_on_codes(m: Manifest) -> dict[str, str]:
    """What was trained beside eq. 1, if anything was."""
    criterion = m.recipe.get("criterion", {})
    noise = criterion.get("hidden_noise", 0.0)
    if noise == 0:
        return {}
    parts = " to ".join(f"{level:g}" for level in (noise if isinstance(noise, list) else [noise]))
    floor, again = criterion.get("hidden_floor", 0.0), criterion.get("hidden_return", 0.0)
    said = f"{parts} of the code's spread, floor {floor:g}, return {again:g}"
    return {"its chain's noise in training": said}


def _picture(name: str) -> str:
    caption = CAPTIONS.get(name.removesuffix(".png"), name)
    return f"![{caption}]({name})\n\n*{caption}.*"


def _command(m: Manifest) -> str:
    return (
        "The recipe stands in `manifest.json`; on the same data, machine and library versions it "
        "gives these weights again (`--data PATH` where the data lies elsewhere):\n\n"
        f"```sh\npython -m trainer fit models/{m.name}/{m.version}\n{_evaluation(m)}\n```"
    )


def _evaluation(m: Manifest) -> str:
    """The command that made the figures above, or the one that makes more."""
    options = m.evaluation.get(OPTIONS)
    command = f"python -m trainer evaluate {m.reference} {options or ''}".rstrip()
    return f"{command}  # {'these' if options is not None else 'more'} figures and pictures"


def _libraries(m: Manifest) -> str:
    return ", ".join(f"{k} {v}" for k, v in m.libraries.items())
