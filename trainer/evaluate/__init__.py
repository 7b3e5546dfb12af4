"""How good a model is, judged on rows it never saw, through the service's own engine.

| figure              | what it says                                               | where         |
|---------------------|------------------------------------------------------------|---------------|
| reconstruction      | root mean square of r(x) - x, in standard deviations       | local.py      |
| denoising           | the same for r(x + σε), and that of x + σε itself          | local.py      |
| moments             | data of known law: local mean and top tangent              | local.py      |
| log-likelihood      | of test rows under a window on every sample                | parzen.py     |
| density, coverage   | are samples where real rows are, and everywhere there      | distances.py  |
| kernel, Fréchet     | distance between features of samples and of test rows      | distances.py  |
| sliced Wasserstein  | distance between samples and test rows themselves          | distances.py  |
| class entropy       | are all classes drawn equally often                        | classes.py    |
| mixing              | split R-hat, effective sample size, burn-in                | mixing.py     |
| nearest row         | are samples copies of training rows                        | neighbours.py |
| exact draws         | data of known law: distance to it, and of exact draws      | exact.py      |
| claims              | calibration, neighbours, consistency: the paper's claims   | claims.py     |

rows.py says which rows judge, comparison.py draws sets of equal size, estimates.py makes errors.
`first_look` makes the figures that take seconds; `evaluate` makes all.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.data import Dataset, GaussianMixture, Split
from trainer.errors import DataError
from trainer.evaluate.chains import draw
from trainer.evaluate.claims import claims_figures
from trainer.evaluate.context import LOST, convene, known_law, search, with_scales
from trainer.evaluate.distances import sliced_wasserstein
from trainer.evaluate.local import against_truth, reconstruction
from trainer.evaluate.plan import SMALL, Plan, plan_for
from trainer.evaluate.report import Judgement, judge_chains
from trainer.evaluate.rows import MOST_ROWS, Held, Rows, held_rows, read_record, rows_for, spread
from trainer.evaluate.trust import with_clean_level
from trainer.evaluate.watch import Watch

__all__ = [
    "Held",
    "Judgement",
    "Plan",
    "Rows",
    "Watch",
    "against_truth",
    "check_width",
    "draw",
    "evaluate",
    "first_look",
    "held_rows",
    "open_model",
    "plan_for",
    "read_record",
    "rows_for",
    "sliced_wasserstein",
]

WIDE_ROWS = 300  # walkers of each kernel where a step is dear


def open_model(folder: Path) -> Model:
    """An artefact, verified and run by the engine that serves it."""
    return Model.open(folder)


def check_width(model: Model, dataset: Dataset) -> None:
    if dataset.dims != model.manifest.input_dims:
        raise DataError(f"{dataset.name} has {dataset.dims} columns, but {model.manifest.reference}"
                        f" was made for {model.manifest.input_dims}.")  # fmt: skip


def first_look(model: Model, dataset: Dataset, held: Held) -> dict[str, Any]:
    """Figures that take seconds, for every kernel, as plain numbers for the manifest."""
    check_width(model, dataset)
    figures: dict[str, Any] = {"rows": len(held.test), **reconstruction(model, held.test)}
    few = len(held.test) if dataset.dims <= SMALL else WIDE_ROWS
    train, test = (x[spread(np.arange(len(x)), few)] for x in (held.train, held.test))
    figures["sliced Wasserstein"] = {"training rows": _distance(model, train, test)}
    for kernel in model.manifest.kernels:
        figures["sliced Wasserstein"][kernel] = _sampled(model, kernel, test)
    if isinstance(dataset.law, GaussianMixture):
        figures["moments"] = against_truth(model, dataset.law, held.test[:100])
    return figures


def evaluate(
    model: Model, dataset: Dataset, split: Split, plan: Plan, watch: Watch,
    other: Dataset | None = None,
) -> Judgement:  # fmt: skip
    """Every figure that this data allows; `other` holds test rows of its own."""
    check_width(model, dataset)
    m = model.manifest
    rows = rows_for(dataset, split, m.normaliser, read_record(m), other)
    court = convene(model, dataset, rows, plan, watch)
    scales = search(court) if plan.search else dict(m.evaluation.get("scales", {}))
    chosen = {name: float(found["chosen"]) for name, found in scales.items()} if plan.search else {}
    model, own = with_scales(model, chosen), court.is_own_data
    if own:  # judging by other data does not change the level at which the model answers
        with watch.part("level for clean rows"):
            model = with_clean_level(model, _model_units(model, rows.validation.x, rows))
    court = replace(court, model=model)
    some = rows.test.x[spread(np.arange(len(rows.test)), MOST_ROWS)]
    held = Held(
        np.asarray(rows.units.to_user(some), np.float64), held_rows(dataset, split, len(some)).train
    )
    with watch.part("first look"):
        first = first_look(court.model, dataset, held)
    judgement = judge_chains(court)
    figures = {**first, "test rows": rows.words, "split": rows.facts, **judgement.figures}
    exact = known_law(court) if judgement.sets else None
    if exact is not None:
        figures["exact draws"] = exact
    if scales:
        figures["scales"] = scales
    if plan.claims and court.is_own_data:
        figures["claims"] = claims_figures(court.model, rows, watch)
    judgement = replace(judgement, figures=figures, scales=chosen)
    if not own:
        return judgement
    m = model.manifest
    return replace(judgement, moments_sigma=m.moments_sigma, typical=m.typical)


def _model_units(model: Model, x: Floats, rows: Rows) -> Floats:
    """Rows of the evaluation, (n, d), in the model's units."""
    return model.manifest.normaliser.to_model(rows.units.to_user(x))


def _sampled(model: Model, kernel: str, test: Doubles) -> float | str:
    """How far the kernel's samples are from the data; in words where they have no distance."""
    try:
        return _distance(model, draw(model, kernel, len(test)), test)
    except DivergedError:
        return LOST


def _distance(model: Model, a: Doubles, b: Doubles) -> float:
    scale = model.manifest.normaliser.scale
    return sliced_wasserstein(a / scale, b / scale)
