"""Checkpoints: the state of a run in one safetensors file, written in one step, without pickle."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from trainer.atomic_files import replace_file
from trainer.errors import RunFolderError, explain_write_errors

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Loss:
    """One point of the loss curves."""

    stage: int
    step: int
    train: float
    valid: float


@dataclass(frozen=True)
class State:
    """The state of a run after `step` steps of `stage`."""

    data: str = ""  # fingerprint of the data
    stage: int = 0
    step: int = 0
    best: float = float("inf")
    loss_sum: float = 0.0  # since the last point of the curves
    loss_count: int = 0
    finished: bool = False
    losses: tuple[Loss, ...] = field(default=())

    def add_batch(self, loss: float) -> "State":
        """The state one step later; `loss` is that of the batch."""
        return replace(
            self, step=self.step + 1, loss_sum=self.loss_sum + loss, loss_count=self.loss_count + 1
        )


def copy_weights(model: nn.Module) -> Weights:
    """Copy the parameters of a model; the keys are their names."""
    return {k: v.detach().clone() for k, v in model.state_dict().items()}


def save(path: Path, state: State, groups: dict[str, Weights]) -> None:
    """Write the state and groups of tensors (model, average, best, adam.m, ...) to one file."""
    tensors = {f"{g}/{k}": v.contiguous() for g, group in groups.items() for k, v in group.items()}
    body = {**vars(state), "losses": [vars(loss) for loss in state.losses]}
    with explain_write_errors(path.parent), replace_file(path) as temporary:
        save_file(tensors, temporary, {"state": json.dumps(body)})


def load(path: Path) -> tuple[State, dict[str, Weights]]:
    """Read what `save` wrote.

    Raises:
        RunFolderError: if the file is missing or damaged.
    """
    groups: dict[str, Weights] = {}
    try:
        with safe_open(path, framework="pt") as file:
            body = json.loads((file.metadata() or {})["state"])
            for key in file.keys():  # noqa: SIM118 (not a dict)
                group, _, name = key.partition("/")
                groups.setdefault(group, {})[name] = file.get_tensor(key)
        losses = tuple(Loss(**loss) for loss in body.pop("losses"))
        return State(**body, losses=losses), groups
    except FileNotFoundError:
        raise RunFolderError(f"There is no checkpoint {path}.") from None
    except (OSError, SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} is not a usable checkpoint: {error}.") from None


def adam_weights(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Weights]:
    """Adam's moments and step counts; the keys are the names of the parameters."""
    names: dict[Tensor, str] = {p: n for n, p in model.named_parameters()}
    groups: dict[str, Weights] = {"adam.m": {}, "adam.v": {}, "adam.step": {}}
    for p, values in optimiser.state.items():
        groups["adam.m"][names[p]] = values["exp_avg"]
        groups["adam.v"][names[p]] = values["exp_avg_sq"]
        groups["adam.step"][names[p]] = values["step"]
    return groups


def restore_adam(
    optimiser: torch.optim.Optimizer, model: nn.Module, groups: dict[str, Weights]
) -> None:
    """Put what `adam_weights` gave back into an optimiser."""
    for name, p in model.named_parameters():
        if name in groups.get("adam.m", {}):
            optimiser.state[p] = {
                "exp_avg": groups["adam.m"][name],
                "exp_avg_sq": groups["adam.v"][name],
                "step": groups["adam.step"][name],
            }
