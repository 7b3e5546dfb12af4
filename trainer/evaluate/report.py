"""Every figure of the default kernel, from chains that the service's own engine walks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from localmoments.arrays import Doubles, Floats
from localmoments.errors import DivergedError
from trainer.evaluate.chains import Drawn
from trainer.evaluate.classes import changes
from trainer.evaluate.classifier import Classifier
from trainer.evaluate.comparison import Reference, make_reference
from trainer.evaluate.context import LOST, Court, centres
from trainer.evaluate.distances import root_mean_square
from trainer.evaluate.metrics import SampleSet, SetFigures, real_against_real, set_figures, subset
from trainer.evaluate.mixing import BurnIn, Scalars, autocorrelation, burn_in, mixing
from trainer.evaluate.neighbours import Neighbours, memorising, neighbours
from trainer.metrics_report import REAL

CONSECUTIVE = 200  # steps whose classes are compared one by one
SETTLING = 24  # points of the curve from noise


@dataclass(frozen=True)
class Judgement:
    """Figures for the manifest, and what the pictures are drawn from."""

    figures: dict[str, Any]
    scales: Mapping[str, float]
    sets: Mapping[str, SetFigures] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    correlation: Doubles | None = None  # (lags + 1, f)
    scalar_names: tuple[str, ...] = ()
    settling: Mapping[int, float] = field(default_factory=dict)  # step -> distance to the end
    copies: tuple[Floats, Floats] | None = None  # samples and the nearest training rows
    distances: tuple[Neighbours, Neighbours] | None = None  # of samples, of test rows
    moments_sigma: float | None = None  # the level for clean rows, measured
    typical: tuple[float, ...] = ()


def judge_chains(court: Court) -> Judgement:
    """The default kernel, from noise."""
    try:
        many, few = _many(court), _few(court)
    except DivergedError:
        return Judgement({"samples": LOST}, {})
    reference = make_reference(court.rows.test.x, court.features, court.plan.set_rows)
    sets = _sets(court, many, few, reference)
    figures: dict[str, Any] = {
        "kernel": court.kernel,
        "scale": court.scale,
        "emission": court.emission,
        "features": court.features.words,
        "comparison": reference.words if reference is not None else "none: too few test rows",
        "samples": {name: found.figures for name, found in sets.items()},
    }
    scalar = Scalars(court.principal)
    late = few.traces[court.plan.burn_in :]
    figures["mixing"] = {"steps": len(late), "chains": late.shape[1], **mixing(late, scalar.names)}
    way = _burn_in(court, many)
    steps = way.settled
    figures["mixing"]["burn-in steps"] = steps if steps is not None else f"over {way.steps[-1]}"
    names: tuple[str, ...] = ()
    if isinstance(court.features, Classifier):
        names = tuple(str(name) for name in court.features.names)
        figures["classifier accuracy"] = court.features.accuracy
        figures["mixing"]["class changes a step"] = _changes(court, few)
    result = Judgement(figures, {}, sets, names, autocorrelation(late, court.plan.lags),
                       scalar.names, dict(zip(way.steps, way.distances.tolist(), strict=True)),
                       )  # fmt: skip
    return _with_copies(court, many, result) if court.is_own_data else result


def _many(court: Court) -> Drawn:
    plan = court.plan
    early = np.geomspace(1, plan.burn_in, SETTLING // 2).round().astype(int).tolist()
    keeps = {*early, *plan.kept_steps(plan.kept)}
    with court.watch.part(f"{plan.walkers} chains", plan.walkers * plan.many_steps) as tick:
        return court.walked(plan.walkers, plan.many_steps, keeps, tick, seed=1)


def _few(court: Court) -> Drawn:
    """Long chains, every step traced, the last ones kept one by one."""
    plan = court.plan
    last = plan.long_steps
    keeps = {*plan.kept_steps(plan.long_kept), *range(last - CONSECUTIVE + 1, last + 1)}
    with court.watch.part(f"{plan.chains} long chains", plan.chains * last) as tick:
        scalar = Scalars(court.principal)
        return court.walked(plan.chains, last, keeps, tick, seed=2, scalar=scalar)


def _kept(drawn: Drawn, steps: range) -> Drawn:
    at = [i for i, step in enumerate(drawn.steps) if step in steps]
    return replace(drawn, steps=tuple(steps), mean=drawn.mean[at], noisy=drawn.noisy[at])


def _sets(
    court: Court, many: Drawn, few: Drawn, reference: Reference | None
) -> dict[str, SetFigures]:
    """Samples, then what they are compared with."""
    plan, rows = court.plan, court.rows
    emissions = ["mean", "noisy"]
    if court.model.manifest.kernels[court.kernel].space == "hidden":
        emissions = ["mean"]  # there both are the same
    chains = {
        f"{plan.walkers} chains": _kept(many, plan.kept_steps(plan.kept)),
        f"{plan.chains} long chains": _kept(few, plan.kept_steps(plan.long_kept)),
    }
    samples = {
        f"{name}, {emission}": SampleSet(drawn.rows(emission), drawn.chains)
        for name, drawn in chains.items()
        for emission in emissions
    }
    count = plan.walkers * plan.kept
    image = court.dataset.image is not None
    known = "training rows" if court.is_own_data else "other real rows"
    found = {}
    with court.watch.part("figures", len(samples) + 2 + plan.baseline) as tick:

        def add(name: str, x: SampleSet) -> None:
            found[name] = set_figures(x, rows, reference, court.features, image=image)
            tick(1)

        for name, x in samples.items():
            add(name, x)
        if reference is not None:
            found[REAL] = real_against_real(rows, reference, court.features, image=image)
        tick(1)
        add(known, SampleSet(subset(rows.train.x, count)))
        if plan.baseline:
            add("k-means centres", SampleSet(centres(court, count)))
    return found


def _burn_in(court: Court, many: Drawn) -> BurnIn:
    """The walkers from noise on, compared with the end of their run."""
    unit = root_mean_square(court.features(court.rows.validation.x))
    emitted = many.emitted(court.emission)  # (T, W, d)
    features = [court.features(x) / unit for x in emitted]
    return burn_in(many.steps, np.stack(features).astype(np.float32))


def _changes(court: Court, few: Drawn) -> float:
    assert isinstance(court.features, Classifier)
    last = few.mean[-CONSECUTIVE:]  # (T, W, d)
    predicted = court.features.predict(last.reshape(-1, last.shape[2]))
    return changes(predicted.reshape(last.shape[:2]))


def _with_copies(court: Court, many: Drawn, so_far: Judgement) -> Judgement:
    plan, rows = court.plan, court.rows
    samples = subset(_kept(many, plan.kept_steps(plan.kept)).rows(court.emission),
                     plan.feature_rows)  # fmt: skip
    with court.watch.part("nearest training rows"):
        ours = neighbours(samples, rows.train.x)
        real = neighbours(subset(rows.test.x, plan.feature_rows), rows.train.x)
    so_far.figures["nearest training row"] = memorising(ours, real)
    some = np.random.default_rng(0).permutation(len(samples))[:40]
    pairs = samples[some], rows.train.x[ours.index[some]]
    return replace(so_far, copies=pairs, distances=(ours, real))
