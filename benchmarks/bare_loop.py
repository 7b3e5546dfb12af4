"""A bare PyTorch training loop that `fit` is compared with: the same models and criteria.

It has no validation, no moving average, no checkpoints and no seeds, as one would write it in a
notebook.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

DEEP = (784, 1000, 1000, 1000, 784)
SIGMA, ALPHA = 0.5, 0.1


@dataclass(frozen=True)
class Problem:
    """Weights, and a function that returns the loss of a batch."""

    weights: list[Tensor]
    loss: Callable[[Tensor], Tensor]


def make_deep_dae() -> Problem:
    """½‖x - r(x + σε)‖² with SiLU units and a sigmoid output (eq. 2)."""
    W = [_make_matrix(m, n) for n, m in pairwise(DEEP)]
    b = [_make_zeros(m) for m in DEEP[1:]]

    def loss(x: Tensor) -> Tensor:
        h = x + SIGMA * torch.randn_like(x)
        for i in range(len(W) - 1):
            h = F.silu(F.linear(h, W[i], b[i]))
        r = torch.sigmoid(F.linear(h, W[-1], b[-1]))
        return 0.5 * (x - r).square().sum(1).mean()

    return Problem([*W, *b], loss)


def make_tied_cae() -> Problem:
    """Cross-entropy + α Σⱼ (hⱼ(1 - hⱼ))² ‖Wⱼ‖² with h = s(Wx + b), r = s(Wᵀh + c) (eq. 1)."""
    W, b, c = _make_matrix(1000, 784), _make_zeros(1000), _make_zeros(784)

    def loss(x: Tensor) -> Tensor:
        h = torch.sigmoid(F.linear(x, W, b))
        logits = h @ W + c
        rows = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
        penalty = (h * (1 - h)).square() @ W.square().sum(1)
        return (rows + ALPHA * penalty).mean()

    return Problem([W, b, c], loss)


def train(problem: Problem, rows: Tensor, batch: int, epochs: int) -> float:
    """Train on rows in memory, shuffled each epoch; return the seconds."""
    adam = torch.optim.Adam(problem.weights, lr=1e-3, fused=True)
    start = time.perf_counter()
    for _ in range(epochs):
        for index in torch.randperm(len(rows)).split(batch):
            loss = problem.loss(rows[index])
            adam.zero_grad()
            loss.backward()
            adam.step()
    return time.perf_counter() - start


def _make_matrix(m: int, n: int) -> Tensor:
    return torch.empty(m, n).uniform_(-1, 1).mul_(math.sqrt(6 / (n + m))).requires_grad_()


def _make_zeros(n: int) -> Tensor:
    return torch.zeros(n, requires_grad=True)
