"""Evaluate a model: the order of the steps, and the figures that each of them adds.

`first_look` computes the figures that take seconds; `fit` writes them into every artefact.
`evaluate` computes all of them. `claims_figures` tests the paper's claims.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.chain import encode_state, make_transition, positions
from localmoments.errors import DivergedError
from localmoments.estimators import FULL_JACOBIAN_DIMS
from localmoments.model import Model
from localmoments.noise import normals
from trainer.data import Dataset, GaussianMixture, Split
from trainer.data.split import spread
from trainer.errors import DataError
from trainer.evaluate.calibration import calibration_figures, local_at, neighbour_figures
from trainer.evaluate.chains import NARROW, Budget, Samples
from trainer.evaluate.comparison import (
    Reference,
    SampleSet,
    SetFigures,
    compare_real_rows,
    compare_set,
    make_reference,
    pick_rows,
)
from trainer.evaluate.consistency import consistency_figures
from trainer.evaluate.context import (
    DIVERGED,
    Context,
    k_means_centres,
    make_context,
    with_scales,
)
from trainer.evaluate.features import Classifier, change_rate
from trainer.evaluate.known_law import compare_with_law, moment_errors
from trainer.evaluate.mixing import BurnIn, Scalars, autocorrelation, burn_in, mixing
from trainer.evaluate.neighbours import Neighbours, copy_figures, find_neighbours
from trainer.evaluate.report import REAL
from trainer.evaluate.rows import (
    MOST_ROWS,
    Held,
    Rows,
    held_rows,
    read_split,
    rows_for,
)
from trainer.evaluate.sample_metrics import root_mean_square, sliced_wasserstein
from trainer.evaluate.scales import search_scales
from trainer.evaluate.trust import reconstruction_figures, with_clean_level
from trainer.progress import track

WIDE_ROWS = 300  # walkers of each kernel in a first look, if rows are wide
FIRST_STEPS = 50  # steps of each walker in a first look
CONSECUTIVE = 200  # last steps of the long chains, whose classes are compared one by one
SETTLING = 24  # points of the burn-in curve
CLAIM_ROWS, WIDE_CLAIM_ROWS = 4_096, 512  # rows that are corrupted; the second where d is large
CLAIM_POINTS = 96  # points with tangents and neighbours, where d is large


@dataclass(frozen=True)
class Evaluation:
    """Figures for the manifest, new defaults for the model, and what the plots are drawn from."""

    figures: dict[str, Any]
    scales: Mapping[str, float] = field(default_factory=dict)  # chosen, by kernel
    sets: Mapping[str, SetFigures] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    correlation: Doubles | None = None  # (lags + 1, f)
    scalar_names: tuple[str, ...] = ()
    settling: Mapping[int, float] = field(default_factory=dict)  # step -> distance to the end
    copies: tuple[Floats, Floats] | None = None  # samples and the nearest training rows
    distances: tuple[Neighbours, Neighbours] | None = None  # of samples, of test rows
    moments_sigma: float | None = None  # the level for clean rows
    typical: tuple[float, ...] = ()


def check_width(model: Model, dataset: Dataset) -> None:
    """Raise DataError if the data has another number of columns than the model."""
    if dataset.dims != model.manifest.input_dims:
        raise DataError(f"{dataset.name} has {dataset.dims} columns, but {model.manifest.reference}"
                        f" was made for {model.manifest.input_dims}.")  # fmt: skip


# --- the first look


def first_look(model: Model, dataset: Dataset, held: Held) -> dict[str, Any]:
    """Figures of every kernel that take seconds, as plain numbers for the manifest."""
    check_width(model, dataset)
    figures: dict[str, Any] = {"rows": len(held.test), **reconstruction_figures(model, held.test)}
    few = len(held.test) if dataset.dims <= NARROW else WIDE_ROWS
    train, test = (x[spread(np.arange(len(x)), few)] for x in (held.train, held.test))
    figures["sliced Wasserstein"] = {"training rows": _distance(model, train, test)}
    for kernel in model.manifest.kernels:
        figures["sliced Wasserstein"][kernel] = _sample_distance(model, kernel, test)
    if isinstance(dataset.law, GaussianMixture):
        figures["moments"] = moment_errors(model, dataset.law, held.test[:100])
    return figures


def draw_from_starts(model: Model, kernel: str, count: int, seed: int = 1) -> Doubles:
    """What `count` walkers emit FIRST_STEPS steps after the start points, in the user's units;
    (count, d)."""
    starts = model.start_points()
    pick = np.random.default_rng(seed).integers(len(starts), size=count)
    transition = make_transition(model, seed=seed, kernel=kernel)
    state = encode_state(model, kernel, starts[pick])
    *_, last = positions(model, transition, state, FIRST_STEPS)
    m = model.manifest
    z = last.noisy if m.default_emit == "noisy" else last.mean
    return np.asarray(m.normaliser.to_user(z), np.float64)


def _sample_distance(model: Model, kernel: str, test: Doubles) -> float | str:
    """The distance of a kernel's samples from test rows; a phrase if its chains diverge."""
    try:
        return _distance(model, draw_from_starts(model, kernel, len(test)), test)
    except DivergedError:
        return DIVERGED


def _distance(model: Model, a: Doubles, b: Doubles) -> float:
    """Sliced Wasserstein distance in standard deviations."""
    scale = model.manifest.normaliser.scale
    return sliced_wasserstein(a / scale, b / scale)


# --- everything


def evaluate(
    model: Model, dataset: Dataset, split: Split, budget: Budget, stream: TextIO | None = None,
    other: Dataset | None = None,
) -> Evaluation:  # fmt: skip
    """Compute every figure that the data allows.

    Args:
        split: as recorded in the manifest; see `rows.split_again`.
        stream: where progress is shown; None for nowhere.
        other: a data set whose rows are the test rows, such as an official test set.

    Raises:
        DataError: the data does not fit the model.
    """
    check_width(model, dataset)
    m = model.manifest
    rows = rows_for(dataset, split, m.normaliser, read_split(m), other)
    context = make_context(model, dataset, rows, budget, stream)
    scales = search_scales(context) if budget.search else dict(m.evaluation.get("scales", {}))
    chosen = {k: float(v["chosen"]) for k, v in scales.items()} if budget.search else {}
    model = with_scales(model, chosen)
    if context.is_own_data:  # other data does not change the level at which the model answers
        with track(stream, "level for clean rows"):
            model = with_clean_level(model, _to_model_units(model, rows, rows.validation.x))
    context = replace(context, model=model)
    some = rows.test.x[spread(np.arange(len(rows.test)), MOST_ROWS)]
    held = Held(
        np.asarray(rows.units.to_user(some), np.float64), held_rows(dataset, split, len(some)).train
    )
    with track(stream, "first look"):
        first = first_look(model, dataset, held)
    evaluation = evaluate_chains(context)
    figures = {**first, "test rows": rows.description, "split": rows.facts, **evaluation.figures}
    exact = compare_chains_with_law(context) if evaluation.sets else None
    if exact is not None:
        figures["exact draws"] = exact
    if scales:
        figures["scales"] = scales
    if budget.claims and context.is_own_data:
        figures["claims"] = claims_figures(model, rows, stream)
    evaluation = replace(evaluation, figures=figures, scales=chosen)
    if not context.is_own_data:
        return evaluation
    m = model.manifest
    return replace(evaluation, moments_sigma=m.moments_sigma, typical=m.typical)


def _to_model_units(model: Model, rows: Rows, x: Floats) -> Floats:
    """(n, d), from the units of the figures."""
    return model.manifest.normaliser.to_model(rows.units.to_user(x))


def evaluate_chains(context: Context) -> Evaluation:
    """Figures of the default kernel: many short chains and few long ones, all from noise."""
    try:
        many, few = _draw_many(context), _draw_few(context)
    except DivergedError:
        return Evaluation({"samples": DIVERGED})
    budget = context.budget
    reference = make_reference(context.rows.test.x, context.features, budget.set_rows)
    sets = _compare_sets(context, many, few, reference)
    figures: dict[str, Any] = {
        "kernel": context.transition.kernel,
        "scale": context.transition.scale[0],
        "emission": context.emission,
        "features": context.features.description,
        "comparison": reference.description if reference else "none: too few test rows",
        "samples": {name: compared.figures for name, compared in sets.items()},
    }
    scalar = Scalars(context.principal)
    late = few.traces[budget.burn_in :]
    figures["mixing"] = {"steps": len(late), "chains": late.shape[1], **mixing(late, scalar.names)}
    settling = _find_burn_in(context, many)
    settled = settling.settled
    figures["mixing"]["burn-in steps"] = (
        f"over {settling.steps[-1]}" if settled is None else settled
    )
    names: tuple[str, ...] = ()
    if isinstance(context.features, Classifier):
        names = tuple(str(name) for name in context.features.names)
        figures["classifier accuracy"] = context.features.accuracy
        figures["mixing"]["class changes a step"] = _class_changes(context.features, few)
    evaluation = Evaluation(
        figures,
        sets=sets,
        class_names=names,
        correlation=autocorrelation(late, budget.lags),
        scalar_names=scalar.names,
        settling=dict(zip(settling.steps, settling.distances.tolist(), strict=True)),
    )
    return _add_copies(context, many, evaluation) if context.is_own_data else evaluation


def _draw_many(context: Context) -> Samples:
    """Many short chains; early steps are kept as well, for the burn-in curve."""
    budget = context.budget
    early = np.geomspace(1, budget.burn_in, SETTLING // 2).round().astype(int).tolist()
    keep = {*early, *budget.kept_steps(budget.kept)}
    total = budget.walkers * budget.many_steps
    with track(context.stream, f"{budget.walkers} chains", total) as advance:
        return context.draw(budget.walkers, budget.many_steps, keep, advance, seed=1)


def _draw_few(context: Context) -> Samples:
    """Few long chains: scalars of every step, and the last steps kept one by one."""
    budget = context.budget
    last = budget.long_steps
    keep = {*budget.kept_steps(budget.long_kept), *range(last - CONSECUTIVE + 1, last + 1)}
    scalar = Scalars(context.principal)
    with track(context.stream, f"{budget.chains} long chains", budget.chains * last) as advance:
        return context.draw(budget.chains, last, keep, advance, seed=2, scalar=scalar)


def _compare_sets(
    context: Context, many: Samples, few: Samples, reference: Reference | None
) -> dict[str, SetFigures]:
    """Figures of the samples, and then of real rows and baselines."""
    budget, rows, image = context.budget, context.rows, context.is_image
    emissions = ["mean", "noisy"]
    if context.model.manifest.kernels[context.transition.kernel].space == "hidden":
        emissions = ["mean"]  # such a kernel emits the same for both
    chains = {
        f"{budget.walkers} chains": many.at(budget.kept_steps(budget.kept)),
        f"{budget.chains} long chains": few.at(budget.kept_steps(budget.long_kept)),
    }
    samples = {
        f"{name}, {emission}": SampleSet(drawn.rows(emission), drawn.chains)
        for name, drawn in chains.items()
        for emission in emissions
    }
    count = budget.walkers * budget.kept
    known = "training rows" if context.is_own_data else "other real rows"
    compared = {}
    with track(context.stream, "figures", len(samples) + 2 + budget.baseline) as advance:

        def add(name: str, x: SampleSet) -> None:
            compared[name] = compare_set(x, rows, reference, context.features, image=image)
            advance(1)

        for name, x in samples.items():
            add(name, x)
        if reference is not None:
            compared[REAL] = compare_real_rows(rows, reference, context.features, image=image)
        advance(1)
        add(known, SampleSet(pick_rows(rows.train.x, count)))
        if budget.baseline:
            add("k-means centres", SampleSet(k_means_centres(context, count)))
    return compared


def _find_burn_in(context: Context, many: Samples) -> BurnIn:
    """Compare the walkers at each kept step with the end of their run."""
    unit = root_mean_square(context.features(context.rows.validation.x))
    emitted = many.emitted(context.emission)  # (T, W, d)
    features = [context.features(x) / unit for x in emitted]
    return burn_in(many.steps, np.stack(features).astype(np.float32))


def _class_changes(classifier: Classifier, few: Samples) -> float:
    last = few.mean[-CONSECUTIVE:]  # (T, W, d)
    predicted = classifier.predict(last.reshape(-1, last.shape[2]))
    return change_rate(predicted.reshape(last.shape[:2]))


def _add_copies(context: Context, many: Samples, evaluation: Evaluation) -> Evaluation:
    """Look for copies of training rows among the samples."""
    budget, rows = context.budget, context.rows
    kept = many.at(budget.kept_steps(budget.kept))
    samples = pick_rows(kept.rows(context.emission), budget.feature_rows)
    with track(context.stream, "nearest training rows"):
        of_samples = find_neighbours(samples, rows.train.x)
        of_test = find_neighbours(pick_rows(rows.test.x, budget.feature_rows), rows.train.x)
    figures = {**evaluation.figures, "nearest training row": copy_figures(of_samples, of_test)}
    some = np.random.default_rng(0).permutation(len(samples))[:40]
    pairs = samples[some], rows.train.x[of_samples.index[some]]
    return replace(evaluation, figures=figures, copies=pairs, distances=(of_samples, of_test))


def compare_chains_with_law(context: Context) -> dict[str, float] | str | None:
    """Compare samples of independent chains with exact draws; None if the law is not known."""
    law, budget = context.dataset.law, context.budget
    if law is None:
        return None
    last = budget.burn_in
    try:
        with track(context.stream, "exact draws", budget.exact_rows * last) as advance:
            drawn = context.draw(budget.exact_rows, last, {last}, advance, seed=3)
    except DivergedError:
        return DIVERGED
    samples = np.asarray(context.rows.units.to_user(drawn.rows(context.emission)), np.float64)
    return compare_with_law(samples, law, context.rows.units)


# --- the paper's claims


def claims_figures(
    model: Model, rows: Rows, stream: TextIO | None = None, seed: int = 0
) -> dict[str, Any]:
    """Test the paper's claims; docs/theory.md says which of them hold.

    | figures     | question                                                 | module         |
    |-------------|----------------------------------------------------------|----------------|
    | calibration | is σ²J the covariance of x given x̃?                      | calibration.py |
    | neighbours  | are r and σ²J the moments of the training rows nearby?   | calibration.py |
    | consistency | has the chain N(μ(x), Σ(x)) the moments that it follows? | consistency.py |

    Args:
        rows: test rows are corrupted and restored; training rows are the neighbours.
        stream: where progress is shown; None for nowhere.

    Returns:
        Plain numbers for the manifest, for example `["calibration"]["0.8"]["trace ratio"]`.
    """
    test, train = (_to_model_units(model, rows, part.x) for part in (rows.test, rows.train))
    rng = np.random.default_rng(seed)
    m = model.manifest
    wide = m.input_dims > FULL_JACOBIAN_DIMS
    some = test[rng.permutation(len(test))[: WIDE_CLAIM_ROWS if wide else CLAIM_ROWS]]
    figures: dict[str, Any] = {"covariance scale": m.covariance_scale, "calibration": {}}
    levels = _claim_levels(model)
    with track(stream, "calibration and neighbours", len(levels)) as advance:
        for sigma in levels:
            noisy = (some + sigma * normals(seed, 0, some.shape)).astype(np.float32)
            points = CLAIM_POINTS if sigma == m.sigma else CLAIM_POINTS // 3
            local = local_at(model, noisy, points, sigma)
            figures["calibration"][f"{sigma:.4g}"] = calibration_figures(local, some, sigma)
            if sigma == m.sigma:
                figures["neighbours"] = neighbour_figures(local, train, sigma, CLAIM_POINTS)
            advance(1)
    if "moment" in m.kernels:
        with track(stream, "consistency"):
            figures["consistency"] = consistency_figures(model, train, rng)
    return figures


def _claim_levels(model: Model) -> list[float]:
    """The chains' noise level; for a model that is told its level also the level for clean rows and
    three of the trained range."""
    m = model.manifest
    if not m.is_conditioned or m.noise_levels is None:
        return [m.sigma]
    low, high = m.noise_levels
    return sorted({low, float(np.sqrt(low * high)), m.sigma, m.moments_sigma, high})
