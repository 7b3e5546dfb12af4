"""A small convolutional classifier of the data's own labels, whose last hidden layer (64 units) is
what samples and real rows are compared by, and which says of what class a sample is.

It is trained on the training rows by `evaluate` itself, from a fixed seed, and kept in the cache
under the data's fingerprint; its accuracy on held-out rows stands beside every figure made with it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from localmoments.arrays import Floats
from localmoments.cpus import available_cpus
from trainer.evaluate.classes import Classes
from trainer.evaluate.features import DIMS

EXAMPLES = 150_000  # rows seen in training, over all passes
BATCH = 100
RATE = 3e-3
FEWEST_A_CLASS = 10
SHARED_PIXELS = 400  # of an image from which a second core pays

Tick = Callable[[int], None]


class Network(nn.Module):
    """Two convolutions with a coarser grid after each, then a hidden layer."""

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
        out: Tensor = self.last(self.features(x))
        return out


@dataclass(frozen=True)
class Classifier:
    network: Network
    names: Classes  # (C,), the label of each class
    accuracy: float  # on held-out rows

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def words(self) -> str:
        return (
            f"the last hidden layer ({DIMS} units) of a convolutional classifier that is right on "
            f"{100 * self.accuracy:.2f} % of held-out rows"
        )

    def __call__(self, x: Floats) -> Floats:
        return self._run(self.network.features, x)

    def predict(self, x: Floats) -> Classes:
        """The class's number, 0 to count - 1; (n,)."""
        return np.asarray(self._run(self.network, x).argmax(1), np.int64)

    @torch.no_grad()
    def _run(self, part: Callable[[Tensor], Tensor], x: Floats) -> Floats:
        parts = torch.from_numpy(np.ascontiguousarray(x)).split(1_000)
        return np.concatenate([part(some).numpy() for some in parts])


def can_classify(labels: Classes | None, image: tuple[int, ...] | None) -> bool:
    """Images with at least two classes, each with some rows."""
    if labels is None or image is None:
        return False
    counts = np.unique(labels[labels >= 0], return_counts=True)[1]
    return len(counts) >= 2 and int(counts.min()) >= FEWEST_A_CLASS


def train(
    image: tuple[int, ...], x: Floats, labels: Classes, tick: Tick, examples: int = EXAMPLES
) -> tuple[Network, Classes]:
    """A network for the labels of rows x (n, d), and the label of each of its classes."""
    known = np.flatnonzero(labels >= 0)
    names, y = np.unique(labels[known], return_inverse=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Network(image, len(names))
    torch.set_num_threads(1 if x.shape[1] < SHARED_PIXELS else available_cpus())
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    steps = max(1, examples // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    rng, order = np.random.default_rng(0), np.empty(0, np.int64)
    for _ in range(steps):
        if len(order) < BATCH:
            order = np.concatenate([order, rng.permutation(len(known))])
        batch, order = order[:BATCH], order[BATCH:]
        rows, target = torch.from_numpy(x[known[batch]]), torch.from_numpy(y[batch])
        loss = nn.functional.cross_entropy(network(rows), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        tick(BATCH)
    return network.eval(), np.asarray(names, np.int64)


def judged(network: Network, names: Classes, x: Floats, labels: Classes) -> Classifier:
    """With its accuracy on rows it was not trained on."""
    known = labels >= 0
    right = names[Classifier(network, names, 0.0).predict(x[known])] == labels[known]
    return Classifier(network, names, float(right.mean()))
