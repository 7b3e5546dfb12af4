"""The pictures of an evaluation; a model's card shows them."""

from pathlib import Path

import numpy as np

from localmoments.chain import draw_starts, encode_state, make_transition, positions
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.data import Dataset, Split
from trainer.evaluate.context import with_scales
from trainer.evaluate.plan import plan_for
from trainer.evaluate.report import Judgement
from trainer.evaluate.rows import spread
from trainer.plots import (
    View,
    draw_bandwidths,
    draw_classes,
    draw_distances,
    draw_mixing,
    draw_neighbours,
    draw_samples,
)
from trainer.plots.view import Float

BACKGROUND_ROWS = 2_000
WALKERS, SCATTERED, KEPT, THIN = 10, 500, 20, 5


def draw_album(
    model: Model, dataset: Dataset, split: Split, judgement: Judgement, folder: Path
) -> list[Path]:
    """Every picture that the figures allow, in the user's units; their paths."""
    j, paths = judgement, []

    def path(name: str) -> Path:
        paths.append(folder / f"{name}.png")
        return paths[-1]

    if not j.sets:  # its chains leave all bounds
        return []
    model, view = with_scales(model, j.scales), view_of(dataset, split)
    title = f"{model.manifest.name}, kernel {model.manifest.default_kernel}, every {THIN}th step"
    emitted = chain(model, view)
    if emitted is not None:
        draw_samples(view, emitted, path("samples"), title)
    if j.class_names:
        draw_classes(_classes(j), j.class_names, path("classes"), "Classes")
    curves = {name: found.parzen.curve for name, found in j.sets.items() if found.parzen}
    if curves:
        draw_bandwidths(curves, path("bandwidths"))
    if j.correlation is not None:
        draw_mixing(j.correlation, j.scalar_names, j.settling, path("mixing"))
    if j.distances is not None:
        ours, real = (found.distance.astype(np.float64) for found in j.distances)
        draw_distances({"held-out rows": real, "samples": ours}, path("distances"))
    if j.copies is not None and view.image is not None:
        ours, real = (x.astype(np.float64) for x in j.copies)
        pixels = View(view.image, None, 0.0, 1.0, real)
        draw_neighbours(pixels, ours, real, path("neighbours"))
    return paths


def _classes(judgement: Judgement) -> dict[str, Float]:
    """The samples of many chains and of few, and real rows."""
    found = {name: s.classes for name, s in judgement.sets.items() if s.classes is not None}
    names = [name for name in found if name.endswith(("mean", "rows"))]
    return {name: found[name] for name in names}


def view_of(dataset: Dataset, split: Split) -> View:
    """Held-out rows behind everything; images that are bytes or lie in [0, 1] keep that range."""
    rows = dataset.source.take(spread(split.validation, BACKGROUND_ROWS)).astype(np.float64)
    low, high = float(rows.min()), float(rows.max())
    if dataset.source.dtype == np.uint8:
        low, high = 0.0, 255.0
    elif low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return View(dataset.image, dataset.features, low, high, rows)


def chain(model: Model, view: View) -> Float | None:
    """What walkers from noise emit after the burn-in, as those that have figures; (KEPT, W, d).

    None if they diverge, which a few walkers of another seed may do."""
    m = model.manifest
    walkers = WALKERS if view.image is not None else SCATTERED
    walk = make_transition(model, seed=1)
    first = plan_for(m.input_dims).burn_in
    state = encode_state(model, walk.kernel, draw_starts(model, walkers, 1, "noise"))
    try:
        steps = positions(model, walk, state, first + KEPT * THIN)
        kept = [p for p in steps if p.step > first and (p.step - first) % THIN == 0]
    except DivergedError:
        return None
    return np.stack(
        [m.normaliser.to_user(p.noisy if m.default_emit == "noisy" else p.mean) for p in kept]
    )
