"""How many cores a training step is worth."""

import os

from torch import nn

SHARED_WORK = 1e8  # weights x rows of a step from which a second core pays


def threads(model: nn.Module, batch: int, asked: int = 0) -> int:
    """All cores for a step that is worth sharing; one for a small one, which would only wait."""
    work = batch * sum(p.numel() for p in model.parameters())
    return asked or (1 if work < SHARED_WORK else cores())


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
