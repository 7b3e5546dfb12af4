"""Features that samples and real rows are compared by, and the classes that a sample belongs to.

Images with labels: a small convolutional classifier is trained on the training rows, from a fixed
seed. Its last hidden layer (64 units) gives the features. Its accuracy on held-out rows is reported
with every figure that it is used for. Other data: projections on the first principal components.

What depends on the data alone is cached as safetensors in `$XDG_CACHE_HOME/localmoments` (default
`~/.cache/localmoments`), under a hash of the data's fingerprint and of every setting that shaped
it. Deleting the files costs time only.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sklearn.decomposition import PCA
from torch import Tensor, nn

from localmoments.arrays import Doubles, Floats
from localmoments.cpus import available_cpus
from trainer.atomic_files import replace_file
from trainer.progress import Advance

DIMS = 64  # features
FITTED_ROWS = 10_000  # at most, for the principal components

BATCH = 100
RATE = 3e-3
FEWEST_A_CLASS = 10  # rows of a class without which there is no classifier
SHARED_PIXELS = 400  # from this image size on, a second core saves time

Classes = NDArray[np.int64]
Tensors = dict[str, Tensor]


class Features(Protocol):
    """A map from rows to features."""

    @property
    def description(self) -> str:
        """A phrase for the card: `Features are …`."""

    def __call__(self, x: Floats) -> Floats: ...  # (n, d) -> (n, f)


# --- principal components


@dataclass(frozen=True)
class Principal:
    """Projections on the axes along which the training rows vary most."""

    mean: Floats  # (d,)
    axes: Floats  # (k, d), orthonormal rows

    @property
    def description(self) -> str:
        return f"{len(self.axes)} principal components"

    def __call__(self, x: Floats) -> Floats:
        return np.asarray((x - self.mean) @ self.axes.T, np.float32)


def fit_principal(rows: Floats) -> Principal:
    """Principal axes of at most FITTED_ROWS evenly spaced rows; rows (n, d)."""
    some = rows[:: -(-len(rows) // FITTED_ROWS)]
    k = min(DIMS, some.shape[1], len(some) - 1)
    pca = PCA(max(1, k), random_state=0).fit(some)
    return Principal(pca.mean_.astype(np.float32), pca.components_.astype(np.float32))


# --- classifier


class Network(nn.Module):
    """Two convolutions, each followed by 2 × 2 pooling, then a hidden layer of 64 units.

    Args:
        image: (H, W) or (H, W, C) of the rows.
        classes: number of outputs.
    """

    def __init__(self, image: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.image = (*image[:2], image[2] if len(image) == 3 else 1)
        h, w, c = self.image
        self.first = nn.Conv2d(c, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.coarser = nn.MaxPool2d(2, ceil_mode=True)
        h, w = -(-h // 2), -(-w // 2)
        self.hidden = nn.Linear(32 * -(-h // 2) * -(-w // 2), DIMS)
        self.last = nn.Linear(DIMS, classes)

    def features(self, x: Tensor) -> Tensor:
        """(B, d) -> (B, 64)"""
        z = x.reshape(-1, *self.image).permute(0, 3, 1, 2)  # (B, C, H, W)
        z = self.coarser(torch.relu(self.first(z)))
        z = self.coarser(torch.relu(self.second(z)))
        return torch.relu(self.hidden(z.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, d) -> (B, classes), logits"""
        out: Tensor = self.last(self.features(x))
        return out


@dataclass(frozen=True)
class Classifier:
    """A trained network with the label of each of its classes."""

    network: Network
    names: Classes  # (C,)
    accuracy: float  # on held-out rows

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def description(self) -> str:
        return (
            f"the last hidden layer ({DIMS} units) of a convolutional classifier that is right on "
            f"{100 * self.accuracy:.2f} % of held-out rows"
        )

    def __call__(self, x: Floats) -> Floats:
        return self._run(self.network.features, x)

    def predict(self, x: Floats) -> Classes:
        """The index of each row's class in `names`; (n,)."""
        return np.asarray(self._run(self.network, x).argmax(1), np.int64)

    @torch.no_grad()
    def _run(self, part: Callable[[Tensor], Tensor], x: Floats) -> Floats:
        parts = torch.from_numpy(np.ascontiguousarray(x)).split(1_000)
        return np.concatenate([part(some).numpy() for some in parts])


def can_classify(labels: Classes | None, image: tuple[int, ...] | None) -> bool:
    """Whether these are images with at least two classes of FEWEST_A_CLASS rows each.

    A negative label marks a row without a label.
    """
    if labels is None or image is None:
        return False
    counts = np.unique(labels[labels >= 0], return_counts=True)[1]
    return len(counts) >= 2 and int(counts.min()) >= FEWEST_A_CLASS


def train_classifier(
    image: tuple[int, ...], x: Floats, labels: Classes, advance: Advance, examples: int
) -> tuple[Network, Classes]:
    """Train a network on rows x (n, d); return it with the label of each of its classes.

    The result depends on the arguments alone.

    Args:
        examples: rows seen in training, over all passes.
    """
    known = np.flatnonzero(labels >= 0)
    names, y = np.unique(labels[known], return_inverse=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Network(image, len(names))
    threads = 1 if x.shape[1] < SHARED_PIXELS else available_cpus()
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    steps = max(1, examples // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    rng, order = np.random.default_rng(0), np.empty(0, np.int64)
    with _use_threads(threads):
        for _ in range(steps):
            if len(order) < BATCH:  # a new pass; what is left of the old one comes first
                order = np.concatenate([order, rng.permutation(len(known))])
            batch, order = order[:BATCH], order[BATCH:]
            rows, target = torch.from_numpy(x[known[batch]]), torch.from_numpy(y[batch])
            loss = nn.functional.cross_entropy(network(rows), target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            advance(BATCH)
    return network.eval(), np.asarray(names, np.int64)


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    """Set torch's number of threads for the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_accuracy(network: Network, names: Classes, x: Floats, labels: Classes) -> Classifier:
    """The classifier with its accuracy on rows x (n, d) that it was not trained on."""
    known = labels >= 0
    right = names[Classifier(network, names, 0.0).predict(x[known])] == labels[known]
    return Classifier(network, names, float(right.mean()))


# --- classes of samples


def class_shares(predicted: Classes, count: int) -> Doubles:
    """The share of each class among predictions of any shape; (count,)."""
    return np.bincount(predicted.ravel(), minlength=count) / predicted.size


def normalised_entropy(predicted: Classes, count: int) -> float:
    """-Σ p log p / log(count) of the shares p: 1 if all classes are equally frequent."""
    p = class_shares(predicted, count)
    p = p[p > 0]
    return float(-(p * np.log(p)).sum() / np.log(count)) + 0.0  # + 0.0 turns -0 into 0


def change_rate(predicted: Classes) -> float:
    """How often a chain's next step belongs to another class; predicted (T, W)."""
    return float((predicted[1:] != predicted[:-1]).mean())


# --- cache


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "localmoments"


def read_or_make(kind: str, key: object, make: Callable[[], Tensors]) -> Tensors:
    """Read the cached result of `make` for this kind and key, or call it and cache the result.

    Args:
        key: everything that `make` depends on; its `repr` is hashed.
    """
    name = hashlib.sha256(repr((kind, key)).encode()).hexdigest()[:24]
    path = cache_folder() / f"{kind}-{name}.safetensors"
    try:
        return load_file(path)
    except (OSError, SafetensorError):  # absent or damaged
        made = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            save_file({k: v.contiguous() for k, v in made.items()}, temporary)
    except OSError:  # a cache that cannot be written is no reason to stop
        pass
    return made
