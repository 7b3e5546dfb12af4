"""card.md: what a model is, how it was trained, what it scored, in words and pictures.

The first sentence names every addition to the paper's criterion, so that nobody takes a model for a
test of the paper that it is not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from localmoments.artefact import Manifest
from trainer.covariance_roots import MATRIX_COLUMNS
from trainer.evaluate.chains import budget_for
from trainer.evaluate.report import OPTIONS, figures_text, pairs

KINDS = {
    "cae": "A contractive auto-encoder (eq. 1 of the paper)",
    "dae": "A denoising auto-encoder (eq. 2 of the paper)",
    "rcae": "An auto-encoder with a contractive reconstruction (eq. L_global of the paper)",
}
CAPTIONS = {
    "samples": "Chains, one per row, left to right",
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
        _first_sentence(manifest),
        pairs(_facts(manifest)),
        "## Figures",
        figures_text(manifest),
        *(_picture(manifest, name) for name in pictures),
        "## Made by",
        _command(manifest),
        f"Trained {manifest.created} with {_libraries(manifest)}.",
    ]
    return "\n\n".join(parts) + "\n"


def _first_sentence(m: Manifest) -> str:
    added = _additions(m)
    if not added:
        return f"{KINDS[m.kind]}, trained on {_rows(m)}."
    return (
        f"{KINDS[m.kind]}, **trained with additions** ({'; '.join(added)}), on {_rows(m)}. "
        "Its figures are not figures of the paper's criterion alone."
    )


def _additions(m: Manifest) -> list[str]:
    """What the recipe has that the equation does not."""
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
        added.append("the network is told its noise level")
    return added


def _top(level: Any) -> float:
    """The larger end of a level or range."""
    return float(max(level) if isinstance(level, list | tuple) else level)


def _rows(m: Manifest) -> str:
    shape = f"images of {'×'.join(map(str, m.image))}" if m.image else f"{m.input_dims} columns"
    return f"{m.data.get('training_rows', 0):,} rows of {m.data.get('name', 'data')} ({shape})"


def _facts(m: Manifest) -> dict[str, Any]:
    model = m.recipe.get("model", {})
    levels = m.noise_levels
    return {
        "hidden layers": " → ".join(map(str, model.get("hidden", ()))) + _shape(model),
        "unit": model.get("unit", ""),
        "loss": m.loss,
        "noise level of chains, σ": f"{m.sigma:.4g}"
        + (f" (trained for {levels[0]:g} to {levels[1]:g})" if levels else ""),
        "noise level for clean rows": f"{m.moments_sigma:.4g}",
        "α": f"{m.alpha:.4g}" + _parts_of_alpha(m),
        **_noise_on_codes(m),
        "scale of covariances": "known" if m.covariance_scale == "absolute" else
        "unknown: covariances are right up to one factor, and there is no score",
        "default kernel": f"{m.default_kernel}, scale {m.kernels[m.default_kernel].scale:.4g}",
        "covariance of a draw": _draw(m),
        "rows held out": f"{m.data.get('held_out_rows', 0):,}",
        "data fingerprint": f"`{m.data.get('fingerprint', '')[:23]}`",
    }  # fmt: skip


def _shape(model: Mapping[str, Any]) -> str:
    """Residual blocks and tied weights."""
    blocks, tied = model.get("blocks", 0), model.get("tied", False)
    each = f", {blocks} residual block{'s' if blocks > 1 else ''} after each" if blocks else ""
    return each + (", tied weights" if tied else "")


def _draw(m: Manifest) -> str:
    """What `gibbs` and `moment` draw with in place of N(0, A) (docs/decisions/0004)."""
    sampling, model = m.recipe.get("sampling", {}), m.recipe.get("model", {})
    root, gain = sampling.get("root", "auto"), sampling.get("gain", 1.0)
    if root == "auto" and m.input_dims <= MATRIX_COLUMNS:
        root = "matrix"
    if root == "auto" and not (model.get("tied") and len(model.get("hidden", ())) == 1):
        root = "jacobian"
    if root == "jacobian":
        return f"γ²JJᵀ in place of A, γ = {gain:g}"
    return f"A (root `{root}`)"


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


def _picture(m: Manifest, name: str) -> str:
    caption = CAPTIONS.get(name.removesuffix(".png"), name)
    if name == "samples.png":
        caption += f". They begin {_starts(m)}"
    return f"![{caption}]({name})\n\n*{caption}.*"


def _starts(m: Manifest) -> str:
    """Where the pictured chains begin: `evaluate` draws them as its figures are made."""
    if OPTIONS in m.evaluation:
        return f"in noise, {budget_for(m.input_dims).burn_in:,} steps before the first one shown"
    if m.recipe.get("sampling", {}).get("starts", "synthetic") == "data":
        return "at held-out rows of the data, not in noise"
    return "at samples of earlier chains, not in noise"


def _command(m: Manifest) -> str:
    return (
        "The recipe stands in `manifest.json`; on the same data, machine and library versions it "
        "gives these weights again (`--data PATH` where the data lies elsewhere):\n\n"
        f"```sh\nlocalmoments fit models/{m.name}/{m.version}\n{_evaluation(m)}\n```"
    )


def _evaluation(m: Manifest) -> str:
    """The command that made the figures above, or the one that makes more."""
    options = m.evaluation.get(OPTIONS)
    command = f"localmoments evaluate {m.reference} {options or ''}".rstrip()
    return f"{command}  # {'these' if options is not None else 'more'} figures and pictures"


def _libraries(m: Manifest) -> str:
    return ", ".join(f"{k} {v}" for k, v in m.libraries.items())
