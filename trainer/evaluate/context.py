"""What every step of an evaluation needs: the model, the rows, the budget, and the features.

Things that depend on the data alone (the classifier, k-means centres) are computed once and kept in
the cache of `features.py`, so that the next model of the same data need not wait for them.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import TextIO

from torch import from_numpy

from localmoments.arrays import Floats
from localmoments.chain import make_transition
from localmoments.chain_state import Transition
from localmoments.model import Model
from trainer.data import Dataset
from trainer.evaluate.chains import Budget, Samples, Scalar, draw_chains
from trainer.evaluate.features import (
    Classifier,
    Features,
    Network,
    Principal,
    Tensors,
    can_classify,
    fit_principal,
    measure_accuracy,
    read_or_make,
    train_classifier,
)
from trainer.evaluate.neighbours import ROUNDS, k_means
from trainer.evaluate.rows import Rows
from trainer.progress import Advance, track

DIVERGED = "its chains diverge"


@dataclass(frozen=True)
class Context:
    """Inputs that every step of an evaluation shares."""

    model: Model
    dataset: Dataset
    rows: Rows
    budget: Budget
    stream: TextIO | None  # where progress is shown
    features: Features
    principal: Principal
    is_own_data: bool  # whether the model was trained on this data

    @property
    def emission(self) -> str:
        """What the model emits by default: `mean` or `noisy`."""
        return self.model.manifest.default_emit

    @property
    def transition(self) -> Transition:
        """The model's default kernel at its default scale."""
        return make_transition(self.model, seed=1)

    @property
    def is_image(self) -> bool:
        return self.dataset.image is not None

    def draw(
        self, walkers: int, steps: int, keep: Container[int], advance: Advance, *, seed: int,
        scalar: Scalar | None = None,
    ) -> Samples:  # fmt: skip
        """Walk the default kernel from noise; samples are in the units of `rows`."""
        transition = replace(self.transition, seed=seed)
        return draw_chains(self.model, transition, walkers, steps, keep, self.rows.units,
                           scalar=scalar, advance=advance)  # fmt: skip


def make_context(
    model: Model, dataset: Dataset, rows: Rows, budget: Budget, stream: TextIO | None
) -> Context:
    """Fit the features: a classifier for images with labels, principal components otherwise."""
    principal = fit_principal(rows.train.x)
    features: Features = principal
    if can_classify(rows.train.labels, dataset.image) and rows.test.labels is not None:
        features = _fit_classifier(dataset, rows, budget, stream)
    is_own_data = dataset.fingerprint == model.manifest.data.get("fingerprint")
    return Context(model, dataset, rows, budget, stream, features, principal, is_own_data)


def _fit_classifier(
    dataset: Dataset, rows: Rows, budget: Budget, stream: TextIO | None
) -> Classifier:
    image, labels = dataset.image, rows.train.labels
    assert image is not None and labels is not None and rows.test.labels is not None

    def make() -> Tensors:
        with track(stream, "classifier", budget.examples) as advance:
            network, names = train_classifier(image, rows.train.x, labels, advance, budget.examples)
        return {**network.state_dict(), "names": from_numpy(names)}

    key = (dataset.fingerprint, len(rows.train), float(rows.units.scale[0]), budget.examples, 1)
    tensors = read_or_make("classifier", key, make)
    names = tensors.pop("names").numpy()
    network = Network(image, len(names))
    network.load_state_dict(tensors)
    return measure_accuracy(network.eval(), names, rows.test.x, rows.test.labels)


def k_means_centres(context: Context, count: int) -> Floats:
    """At most `count` centres of the training rows; (k, d)."""
    rows = context.rows

    def make() -> Tensors:
        with track(context.stream, "k-means"):
            return {"centres": from_numpy(k_means(rows.train.x, count))}

    key = (context.dataset.fingerprint, len(rows.train), float(rows.units.scale[0]), count, ROUNDS)
    centres: Floats = read_or_make("k-means", key, make)["centres"].numpy()
    return centres


def with_scales(model: Model, scales: Mapping[str, float]) -> Model:
    """The same model with other default scales; kernels that are not named keep theirs."""
    m = model.manifest
    kernels = {k: replace(v, scale=scales.get(k, v.scale)) for k, v in m.kernels.items()}
    return model.with_manifest(replace(m, kernels=kernels))
