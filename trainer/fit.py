"""The training loop: one pass from top to bottom, resumable bit for bit.

Batches, noise and learning rate are functions of (seed, step), so a checkpoint holds weights,
Adam's moments and counters, and nothing of a random generator. Weights that are kept are the
moving average, and of those the ones with the best loss on held-out rows.
"""

import csv
import io
import math
import time
from dataclasses import replace

import torch
from torch import Tensor

from trainer import checkpoint
from trainer.autoencoder import AutoEncoder
from trainer.batches import make_feed, seeded
from trainer.checkpoint import Loss, State, Weights
from trainer.config import Recipe, TrainingOptions
from trainer.errors import RunFolderError, TrainingError, explain_write_errors
from trainer.interrupts import Interrupted, Stop
from trainer.prepare import Prepared, held_out_rows
from trainer.progress import Progress
from trainer.run import LOSSES, Run, write_text
from trainer.stages import Stage, stages
from trainer.threads import threads

CURVE_POINTS = 50  # lines of a stage's loss curves; fewer where judging would cost over a tenth
VALIDATION_ROWS = 2_000


def new_model(prepared: Prepared, seed: int) -> AutoEncoder:
    """An untrained model, the same for the same seed."""
    torch.manual_seed(seeded(seed, "weights", 0))
    return AutoEncoder(prepared.architecture)


def learning_rate(options: TrainingOptions, step: int, steps: int) -> float:
    """A short rise, then constant or half a cosine down to a hundredth."""
    rise = min(1.0, (step + 1) / max(1, min(500, steps // 20)))
    fall = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * step / steps))
    return options.learning_rate * rise * (fall if options.schedule == "cosine" else 1.0)


def fit(recipe: Recipe, prepared: Prepared, run: Run) -> AutoEncoder:
    """Train to the end, from the run's checkpoint if it has one; returns the kept weights."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    model = new_model(prepared, recipe.training.seed)
    torch.set_num_threads(threads(model, recipe.training.batch, recipe.training.threads))
    parts = stages(model, prepared.criterion, recipe.criterion.stacked)
    with run.locked(), Stop().listening() as stop:
        state, groups = reached(run, prepared)
        if groups:
            load_weights(model, groups["model"], run)
        while not state.finished:
            trainer = StageTrainer(recipe, prepared, run, model, parts[state.stage])
            state = trainer.train(state, groups, stop)
            groups = {}
            done = state.stage + 1 == len(parts)
            state = replace(state, stage=state.stage + (not done), finished=done, step=0)
            state = replace(state, best=math.inf, loss_sum=0.0, loss_count=0)
            checkpoint.save(run.checkpoint, state, {"model": checkpoint.weights_of(model)})
        write_losses(run, state)
        if stop.asked:
            raise Interrupted(
                "Stopped after the last step, with everything saved; go on with "
                f"python -m trainer fit --resume {run.folder}"
            )
    return model.eval()


def reached(run: Run, prepared: Prepared) -> tuple[State, dict[str, Weights]]:
    """Where the run stands: at its checkpoint, or at the beginning. The data must be the same,
    because normaliser and batches come from it."""
    data = prepared.dataset.fingerprint
    if not run.checkpoint.exists():
        return State(data=data), {}
    state, groups = checkpoint.load(run.checkpoint)
    if state.data != data:
        raise RunFolderError(f"{prepared.dataset.name} has changed since {run.folder} was begun; "
                             "bring the old data back, or start a new run.")  # fmt: skip
    return state, groups


def load_weights(model: AutoEncoder, weights: Weights, run: Run) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError:  # torch lists every tensor, line by line
        raise RunFolderError(
            f"{run.checkpoint} is not a checkpoint of the recipe that lies beside it."
        ) from None


class StageTrainer:
    """Trains one stage's part in place; a stage ends with the kept weights in the model."""

    def __init__(
        self, recipe: Recipe, prepared: Prepared, run: Run, model: AutoEncoder, stage: Stage
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

    def train(self, state: State, groups: dict[str, Weights], stop: Stop) -> State:
        """The loop. `groups` are a checkpoint's tensors, or empty at a stage's beginning."""
        part, options = self.stage.part, self.options
        average = self._named(groups, "average")
        best = self._named(groups, "best")
        checkpoint.restore_adam(self.optimiser, part, groups)
        every = max(1, self.steps // CURVE_POINTS, 10 * len(self.validation) // options.batch)
        progress = Progress(f"fit {self.name}", self._seen(self.steps), self._seen(state.step))
        saved = time.monotonic()
        for step in range(state.step, self.steps):
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate(options, step, self.steps)
            self.generator.manual_seed(seeded(options.seed, f"noise {state.stage}", step))
            x = self.stage.below(self.feed.batch(step))  # (B, n)
            with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
                loss = self.stage.criterion(part, x, self.generator)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            self.optimiser.step()
            self._average(average, step)
            value = loss.item()
            if not math.isfinite(value):
                raise TrainingError(self._diverged(value, step))
            state = state.with_batch(value)
            progress.advance(len(x), value)
            if state.step % every == 0 or state.step == self.steps:
                state = self._judged(state, average, best)
            if time.monotonic() - saved > options.checkpoint_seconds or stop.asked:
                self._save(state, average, best)
                saved = time.monotonic()
            if stop.asked:
                progress.close()
                raise Interrupted(
                    f"Stopped and saved at step {state.step} of {self.steps}; go on with "
                    f"python -m trainer fit --resume {self.run.folder}"
                )
        progress.close()
        part.load_state_dict(best if options.keep == "best" else average)
        return state

    def _seen(self, step: int) -> int:
        """Rows that went by before a step; an epoch's last batch may be short."""
        epochs, i = divmod(step, self.feed.steps_per_epoch)
        return epochs * self.rows + min(i * self.options.batch, self.rows)

    def _named(self, groups: dict[str, Weights], name: str) -> Weights:
        """Tensors of a checkpoint's group in the parameters' order, or copies of the weights."""
        fresh = checkpoint.weights_of(self.stage.part)
        return {key: groups[name][key] for key in fresh} if name in groups else fresh

    @torch.no_grad()
    def _average(self, average: Weights, step: int) -> None:
        """w̄ ← w̄ + (1 - d)(w - w̄), with a smaller d while there is little to average."""
        decay = min(self.options.average, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(average.values()), self.parameters, 1 - decay)

    @torch.no_grad()
    def _judged(self, state: State, average: Weights, best: Weights) -> State:
        """A line of the curves; the average becomes the best where its held-out loss is."""
        part = self.stage.part
        current = checkpoint.weights_of(part)
        part.load_state_dict(average)
        self.generator.manual_seed(seeded(0, "validation", state.stage))
        x = self.stage.below(self.validation)
        valid = self.stage.criterion(part, x, self.generator).item()
        part.load_state_dict(current)
        if not math.isfinite(valid):
            raise TrainingError(self._diverged(valid, state.step))
        if valid < state.best:
            for name, value in average.items():
                best[name].copy_(value)
        train = state.loss_sum / max(1, state.loss_count)
        line = Loss(state.stage, state.step, train, valid)
        losses = (*state.losses, line)
        return replace(
            state, best=min(valid, state.best), losses=losses, loss_sum=0.0, loss_count=0
        )

    def _save(self, state: State, average: Weights, best: Weights) -> None:
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters):
            raise TrainingError(self._diverged(math.nan, state.step))
        groups = {"model": checkpoint.weights_of(self.model), "average": average, "best": best}
        groups |= checkpoint.adam_weights(self.optimiser, self.stage.part)
        checkpoint.save(self.run.checkpoint, state, groups)
        write_losses(self.run, state)

    def _diverged(self, value: float, step: int) -> str:
        kept = "No checkpoint was written yet."
        if self.run.checkpoint.exists():
            kept = f"The last good checkpoint is kept in {self.run.folder}."
        return (
            f"The loss turned {value} at step {step}, so training stopped; a smaller "
            f"training.learning_rate usually helps. {kept}"
        )


def write_losses(run: Run, state: State) -> None:
    """The loss curves as a table."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("stage", "step", "train", "valid"))
    table.writerows((loss.stage, loss.step, loss.train, loss.valid) for loss in state.losses)
    with explain_write_errors(run.folder):
        write_text(run.folder / LOSSES, text.getvalue())
