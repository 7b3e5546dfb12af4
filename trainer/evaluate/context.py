"""What every part of an evaluation needs: the model, the rows, and what is made of them first."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import from_numpy

from localmoments.arrays import Floats
from localmoments.chain import draw_starts
from localmoments.errors import DivergedError
from localmoments.model import Model
from trainer.data import Dataset
from trainer.evaluate import classifier
from trainer.evaluate.baselines import ROUNDS, k_means
from trainer.evaluate.cache import Tensors, cached
from trainer.evaluate.chains import Drawn, Scalar, Tick, from_start
from trainer.evaluate.classifier import Classifier, Network, can_classify, judged
from trainer.evaluate.features import Features, Principal, principal
from trainer.evaluate.known_law import against_exact
from trainer.evaluate.plan import Plan
from trainer.evaluate.rows import Rows
from trainer.evaluate.scales import FACTORS, Judge, search_scale
from trainer.evaluate.watch import Watch

LOST = "its chains leave all bounds"


@dataclass(frozen=True)
class Court:
    """What every part of an evaluation needs."""

    model: Model
    dataset: Dataset
    rows: Rows
    plan: Plan
    watch: Watch
    features: Features
    principal: Principal
    is_own_data: bool  # the data that the model was trained on

    @property
    def emission(self) -> str:
        return self.model.manifest.default_emit

    @property
    def kernel(self) -> str:
        return self.model.manifest.default_kernel

    @property
    def scale(self) -> float:
        return self.model.manifest.kernels[self.kernel].scale

    def walked(
        self, walkers: int, steps: int, keeps: Container[int], tick: Tick, *, seed: int,
        scalar: Scalar | None = None,
    ) -> Drawn:  # fmt: skip
        """The default kernel from noise."""
        start = draw_starts(self.model, walkers, seed, "noise")
        return from_start(self.model, self.kernel, self.scale, start, self.rows.units, steps,
                          keeps, tick, scalar, seed)  # fmt: skip


def convene(
    model: Model, dataset: Dataset, rows: Rows, plan: Plan, watch: Watch
) -> Court:  # fmt: skip
    """Features of the data, and all else that is made before the first chain walks."""
    axes = principal(rows.train.x)
    features: Features = axes
    if can_classify(rows.train.labels, dataset.image) and rows.test.labels is not None:
        features = _classifier(dataset, rows, plan, watch)
    own = dataset.fingerprint == model.manifest.data.get("fingerprint")
    return Court(model, dataset, rows, plan, watch, features, axes, own)


def _classifier(dataset: Dataset, rows: Rows, plan: Plan, watch: Watch) -> Classifier:
    image, labels = dataset.image, rows.train.labels
    assert image is not None and labels is not None and rows.test.labels is not None

    def make() -> Tensors:
        with watch.part("classifier", plan.examples) as tick:
            network, names = classifier.train(image, rows.train.x, labels, tick, plan.examples)
        return {**network.state_dict(), "names": from_numpy(names)}

    key = (dataset.fingerprint, len(rows.train), float(rows.units.scale[0]), plan.examples, 1)
    tensors = cached("classifier", key, make)
    names = tensors.pop("names").numpy()
    network = Network(image, len(names))
    network.load_state_dict(tensors)
    return judged(network.eval(), names, rows.test.x, rows.test.labels)


def search(court: Court) -> dict[str, Any]:
    """For every kernel whose scale the recipe leaves open."""
    m = court.model.manifest
    asked = m.recipe.get("sampling", {}).get("scales", {})
    open_ = [name for name in m.kernels if name not in asked]
    judge = Judge(court.rows, court.features, is_table=court.dataset.image is None)
    with court.watch.part("scales", len(open_) * (len(FACTORS) + 2)) as tick:
        return {name: search_scale(court.model, name, judge, court.plan, tick) for name in open_}


def with_scales(model: Model, scales: Mapping[str, float]) -> Model:
    """The same graphs, other default scales."""
    m = model.manifest
    kernels = {k: replace(v, scale=scales.get(k, v.scale)) for k, v in m.kernels.items()}
    return Model(model.folder, replace(m, kernels=kernels))


def centres(court: Court, count: int) -> Floats:
    rows = court.rows

    def make() -> Tensors:
        with court.watch.part("k-means"):
            return {"centres": from_numpy(k_means(rows.train.x, count))}

    key = (court.dataset.fingerprint, len(rows.train), float(rows.units.scale[0]), count, ROUNDS)
    made: Floats = cached("k-means", key, make)["centres"].numpy()
    return made


def known_law(court: Court) -> dict[str, float] | str | None:
    """Samples of independent chains against exact draws, where the law is known."""
    truth, plan = court.dataset.law, court.plan
    if truth is None:
        return None
    last = plan.burn_in
    try:
        with court.watch.part("exact draws", plan.exact_rows * last) as tick:
            drawn = court.walked(plan.exact_rows, last, {last}, tick, seed=3)
    except DivergedError:
        return LOST
    samples = np.asarray(court.rows.units.to_user(drawn.rows(court.emission)), np.float64)
    return against_exact(samples, truth, court.rows.units)
