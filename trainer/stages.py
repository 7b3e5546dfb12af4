"""Which part of the model is trained on what, one after the other.

Usually there is one stage: the whole auto-encoder on the data. A stacked CAE has one a layer:
layer i is a one-layer auto-encoder of the representation that the layers below it make.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from trainer.autoencoder import AutoEncoder
from trainer.criteria import Criterion


@dataclass(frozen=True)
class Stage:
    """An auto-encoder that shares the model's layers, and what feeds it."""

    part: AutoEncoder
    criterion: Criterion
    below: Callable[[Tensor], Tensor]  # data -> the part's input


def stages(model: AutoEncoder, criterion: Criterion, stacked: bool) -> list[Stage]:
    if not stacked or len(model.architecture.hidden) == 1:
        return [Stage(model, criterion, lambda x: x)]
    return [_layer(model, criterion, i) for i in range(len(model.architecture.hidden))]


def _layer(model: AutoEncoder, criterion: Criterion, i: int) -> Stage:
    """Stage i of a stack of plain layers."""
    a = model.architecture
    widths = (a.dims, *a.hidden)
    unit = a.decoder if i == 0 else a.unit
    bounded = unit == "sigmoid"
    one = replace(a, dims=widths[i], hidden=(widths[i + 1],), decoder="linear")
    part = AutoEncoder(one)
    part.encoder = nn.ModuleList([model.encoder[i]])
    part.decoder = nn.ModuleList([model.decoder[len(a.hidden) - 1 - i]])
    lower = list(model.encoder)[:i]

    def below(x: Tensor) -> Tensor:
        with torch.no_grad():
            for layer in lower:
                x = layer(x)
        return x

    return Stage(part, criterion if bounded else replace(criterion, loss="squared"), below)
