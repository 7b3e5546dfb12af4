"""The training loop.

Batches, noise and learning rate are functions of (seed, step). A checkpoint therefore needs only
the weights, Adam's moments and counters, and a resumed run gives the same weights bit for bit.
`fit` keeps a moving average of the weights, taken where the held-out loss is lowest.

Usually there is one stage, which trains the whole auto-encoder on the data. A stacked CAE has one
stage per layer: stage i trains layer i as an auto-encoder of the output of the layers below it.
"""

import csv
import io
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from localmoments.cpus import available_cpus
from trainer import checkpoint
from trainer.atomic_files import write_text
from trainer.autoencoder import AutoEncoder
from trainer.batches import derive_seed, make_feed
from trainer.checkpoint import Loss, State, Weights
from trainer.config import Recipe, TrainingOptions
from trainer.criteria import Criterion
from trainer.errors import RunFolderError, TrainingError, explain_write_errors
from trainer.interrupts import Interrupted, StopFlag
from trainer.prepare import PreparedData, held_out_rows
from trainer.progress import Progress
from trainer.run_folder import LOSSES, RunFolder

# Points of a stage's loss curve; fewer if measuring would take over a tenth of the time.
CURVE_POINTS = 50
VALIDATION_ROWS = 2_000
SHARED_WORK = 1e8  # weights x rows of a step above which a second CPU makes it faster


def new_model(prepared: PreparedData, seed: int) -> AutoEncoder:
    """An untrained model; its weights are a function of the seed."""
    torch.manual_seed(derive_seed(seed, "weights", 0))
    return AutoEncoder(prepared.architecture)


def learning_rate(options: TrainingOptions, step: int, steps: int) -> float:
    """The learning rate at a step: a short linear rise, then constant or half a cosine.

    The cosine ends at a hundredth of the highest rate.
    """
    rise = min(1.0, (step + 1) / max(1, min(500, steps // 20)))
    fall = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps))
    return options.learning_rate * rise * (fall if options.schedule == "cosine" else 1.0)


def choose_threads(model: nn.Module, options: TrainingOptions) -> int:
    """Threads for a training step: `options.threads`, or all CPUs, or 1 for a small step.

    Sharing a small step takes longer than computing it.
    """
    work = options.batch * sum(p.numel() for p in model.parameters())
    return options.threads or (1 if work < SHARED_WORK else available_cpus())


@dataclass(frozen=True)
class Stage:
    """A part of the model, which shares its layers, and how that part is trained."""

    part: AutoEncoder
    criterion: Criterion
    to_input: Callable[[Tensor], Tensor]  # rows of the data -> the part's input


def make_stages(model: AutoEncoder, criterion: Criterion, stacked: bool) -> list[Stage]:
    """The stages of the training, in order."""
    if not stacked or len(model.architecture.hidden) == 1:
        return [Stage(model, criterion, lambda x: x)]
    return [_make_layer_stage(model, criterion, i) for i in range(len(model.architecture.hidden))]


def _make_layer_stage(model: AutoEncoder, criterion: Criterion, i: int) -> Stage:
    """Stage i of a stacked model without residual blocks."""
    a = model.architecture
    widths = (a.dims, *a.hidden)
    unit = a.decoder if i == 0 else a.unit
    part = AutoEncoder(replace(a, dims=widths[i], hidden=(widths[i + 1],), decoder="linear"))
    part.encoder = nn.ModuleList([model.encoder[i]])
    part.decoder = nn.ModuleList([model.decoder[len(a.hidden) - 1 - i]])
    lower = list(model.encoder)[:i]

    def to_input(x: Tensor) -> Tensor:
        with torch.no_grad():
            for layer in lower:
                x = layer(x)
        return x

    # Cross-entropy needs outputs in (0, 1), which only a sigmoid layer has.
    is_bounded = unit == "sigmoid"
    return Stage(part, criterion if is_bounded else replace(criterion, loss="squared"), to_input)


def fit(recipe: Recipe, prepared: PreparedData, run: RunFolder) -> AutoEncoder:
    """Train to the end, from the run's checkpoint if there is one.

    Returns:
        The model with the weights that are kept, in evaluation mode.

    Raises:
        TrainingError: if the loss becomes infinite or NaN.
        RunFolderError: if the folder is in use, cannot be written, or belongs to other data.
        Interrupted: if a signal arrived; the run is saved and can be resumed.
    """
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    model = new_model(prepared, recipe.training.seed)
    torch.set_num_threads(choose_threads(model, recipe.training))
    stages = make_stages(model, prepared.criterion, recipe.criterion.stacked)
    with run.lock(), StopFlag().handle_signals() as stop:
        state, groups = read_checkpoint(run, prepared)
        if groups:
            load_weights(model, groups["model"], run)
        while not state.finished:
            trainer = StageTrainer(recipe, prepared, run, model, stages[state.stage])
            state = trainer.train(state, groups, stop)
            groups = {}
            is_last = state.stage + 1 == len(stages)
            state = replace(state, stage=state.stage + (not is_last), finished=is_last, step=0)
            state = replace(state, best=math.inf, loss_sum=0.0, loss_count=0)
            checkpoint.save(run.checkpoint, state, {"model": checkpoint.copy_weights(model)})
        write_losses(run, state)
        if stop.is_set:
            raise Interrupted(
                "Stopped after the last step; everything is saved. Continue with "
                f"localmoments fit --resume {run.path}"
            )
    return model.eval()


def read_checkpoint(run: RunFolder, prepared: PreparedData) -> tuple[State, dict[str, Weights]]:
    """The state of a run and its tensors; the initial state if there is no checkpoint.

    Raises:
        RunFolderError: if the checkpoint cannot be read, or the data has changed. The normaliser
            and the batches depend on the data.
    """
    fingerprint = prepared.dataset.fingerprint
    if not run.checkpoint.exists():
        return State(data=fingerprint), {}
    state, groups = checkpoint.load(run.checkpoint)
    if state.data != fingerprint:
        raise RunFolderError(f"{prepared.dataset.name} has changed since {run.path} was started; "
                             "restore the old data, or start a new run.")  # fmt: skip
    return state, groups


def load_weights(model: AutoEncoder, weights: Weights, run: RunFolder) -> None:
    """Copy the weights of a checkpoint into a model.

    Raises:
        RunFolderError: if they do not fit the recipe of the run.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError:  # torch lists every tensor, line by line
        raise RunFolderError(
            f"{run.checkpoint} does not belong to the recipe in the same folder."
        ) from None


class StageTrainer:
    """Trains the part of one stage in place; at the end it has the weights that are kept."""

    def __init__(
        self,
        recipe: Recipe,
        prepared: PreparedData,
        run: RunFolder,
        model: AutoEncoder,
        stage: Stage,
    ) -> None:
        self.options, self.run, self.model, self.stage = recipe.training, run, model, stage
        self.name = recipe.name
        self.feed = make_feed(
            prepared.dataset.source, prepared.split.train, prepared.normaliser,
            batch=self.options.batch, seed=self.options.seed,
            memory_limit=recipe.data.memory_limit,
        )  # fmt: skip
        self.steps = self.options.epochs * self.feed.steps_per_epoch
        self.rows = len(prepared.split.train)
        self.validation = held_out_rows(prepared, VALIDATION_ROWS)
        self.generator = torch.Generator()
        self.parameters: list[Tensor] = list(stage.part.parameters())
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=self.options.learning_rate, fused=True,
            weight_decay=self.options.weight_decay,
        )  # fmt: skip

    def train(self, state: State, groups: dict[str, Weights], stop: StopFlag) -> State:
        """Run the training loop from `state` to the end of the stage.

        Args:
            state: where to start.
            groups: the tensors of a checkpoint within this stage; empty at its first step.
            stop: checked after every step.
        """
        part, options = self.stage.part, self.options
        average = self._select(groups, "average")
        best = self._select(groups, "best")
        checkpoint.restore_adam(self.optimiser, part, groups)
        every = max(1, self.steps // CURVE_POINTS, 10 * len(self.validation) // options.batch)
        progress = Progress(
            f"fit {self.name}", self._rows_before(self.steps), self._rows_before(state.step)
        )
        saved = time.monotonic()
        for step in range(state.step, self.steps):
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate(options, step, self.steps)
            self.generator.manual_seed(derive_seed(options.seed, f"noise {state.stage}", step))
            x = self.stage.to_input(self.feed.batch(step))  # (B, n)
            with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
                loss = self.stage.criterion(part, x, self.generator)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.optimiser.step()
            self._update_average(average, step)
            value = loss.item()
            if not math.isfinite(value):
                raise TrainingError(self._explain_divergence(value, step))
            state = state.add_batch(value)
            progress.advance(len(x), value)
            if state.step % every == 0 or state.step == self.steps:
                state = self._measure(state, average, best)
            if time.monotonic() - saved > options.checkpoint_seconds or stop.is_set:
                self._save(state, average, best)
                saved = time.monotonic()
            if stop.is_set:
                progress.close()
                raise Interrupted(
                    f"Stopped and saved at step {state.step} of {self.steps}. Continue with "
                    f"localmoments fit --resume {self.run.path}"
                )
        progress.close()
        part.load_state_dict(best if options.keep == "best" else average)
        return state

    def _rows_before(self, step: int) -> int:
        """Rows used before a step. The last batch of an epoch may be short."""
        epochs, i = divmod(step, self.feed.steps_per_epoch)
        return epochs * self.rows + min(i * self.options.batch, self.rows)

    def _select(self, groups: dict[str, Weights], name: str) -> Weights:
        """A group of a checkpoint's tensors in the order of the parameters, or copies of these."""
        copies = checkpoint.copy_weights(self.stage.part)
        return {key: groups[name][key] for key in copies} if name in groups else copies

    @torch.no_grad()
    def _update_average(self, average: Weights, step: int) -> None:
        """w̄ ← w̄ + (1 - d)(w - w̄); d rises from 0.1, so that the first weights are forgotten."""
        decay = min(self.options.average, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(average.values()), self.parameters, 1 - decay)

    @torch.no_grad()
    def _measure(self, state: State, average: Weights, best: Weights) -> State:
        """Add a point to the loss curves; an average with the lowest loss becomes the best."""
        part = self.stage.part
        current = checkpoint.copy_weights(part)
        part.load_state_dict(average)
        self.generator.manual_seed(derive_seed(0, "validation", state.stage))
        x = self.stage.to_input(self.validation)
        valid = self.stage.criterion(part, x, self.generator).item()
        part.load_state_dict(current)
        if not math.isfinite(valid):
            raise TrainingError(self._explain_divergence(valid, state.step))
        if valid < state.best:
            for name, value in average.items():
                best[name].copy_(value)
        train = state.loss_sum / max(1, state.loss_count)
        losses = (*state.losses, Loss(state.stage, state.step, train, valid))
        return replace(
            state, best=min(valid, state.best), losses=losses, loss_sum=0.0, loss_count=0
        )

    def _save(self, state: State, average: Weights, best: Weights) -> None:
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters):
            raise TrainingError(self._explain_divergence(math.nan, state.step))
        groups = {"model": checkpoint.copy_weights(self.model), "average": average, "best": best}
        groups |= checkpoint.adam_weights(self.optimiser, self.stage.part)
        checkpoint.save(self.run.checkpoint, state, groups)
        write_losses(self.run, state)

    def _explain_divergence(self, value: float, step: int) -> str:
        where = "There is no checkpoint yet."
        if self.run.checkpoint.exists():
            where = f"The last good checkpoint is in {self.run.path}."
        return (
            f"The loss became {value} at step {step}. Try a smaller training.learning_rate. {where}"
        )


def write_losses(run: RunFolder, state: State) -> None:
    """Write the loss curves as a CSV file."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("stage", "step", "train", "valid"))
    table.writerows((loss.stage, loss.step, loss.train, loss.valid) for loss in state.losses)
    with explain_write_errors(run.path):
        write_text(run.path / LOSSES, text.getvalue())
