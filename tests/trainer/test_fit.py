"""The loop: the same recipe gives the same weights, however often it is stopped."""

import math
import os
import signal
from dataclasses import replace

import pytest
import torch

from trainer import checkpoint
from trainer.batches import derive_seed
from trainer.checkpoint import State
from trainer.config import TrainingOptions, make_recipe
from trainer.errors import RunFolderError, TrainingError
from trainer.fit import choose_threads, fit, learning_rate, make_stages, new_model, read_checkpoint
from trainer.interrupts import Interrupted
from trainer.prepare import held_out_rows, prepare
from trainer.progress import Progress
from trainer.run_folder import new_run

BODY = {
    "name": "small",
    "data": {"source": "gaussian", "rows": 150},
    "model": {"hidden": [6], "unit": "tanh"},
    "training": {"epochs": 3, "batch": 32, "learning_rate": 0.01},
}


def recipe_with(**training):
    tables = {k: v for k, v in training.items() if isinstance(v, dict)}
    values = {k: v for k, v in training.items() if k not in tables}
    return make_recipe({**BODY, **tables, "training": {**BODY["training"], **values}})


STACKED = {
    "model": {"hidden": [6, 4], "unit": "sigmoid", "tied": True},
    "criterion": {"kind": "cae", "stacked": True},
}


def trained(runs, recipe):
    run = new_run(runs, recipe)
    return fit(recipe, prepare(recipe), run), run


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_recipe_always_gives_the_same_weights_and_another_seed_gives_others(tmp_path):
    first, _ = trained(tmp_path, recipe_with())
    again, _ = trained(tmp_path, recipe_with())
    other, _ = trained(tmp_path, recipe_with(seed=1))
    assert same(first, again) and not same(first, other)


@pytest.fixture
def signalled(monkeypatch):
    """A real signal to this process at every n-th step, where the loop reports its progress."""

    def every(n):
        advance = Progress.advance
        steps = iter(range(1, 10**6))

        def noisy(self, count, loss):
            advance(self, count, loss)
            if next(steps) % n == 0:
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(Progress, "advance", noisy)

    return every


@pytest.mark.parametrize(
    "tables", [{}, STACKED, {"precision": "bfloat16"}], ids=["plain", "stacked", "bfloat16"]
)
@pytest.mark.parametrize("every", [1, 4])
def test_a_run_stopped_every_few_steps_equals_an_uninterrupted_one(
    tables, every, signalled, tmp_path
):
    recipe = recipe_with(**tables)
    expected, whole = trained(tmp_path, recipe)
    signalled(every)
    run, prepared, stops = new_run(tmp_path, recipe), prepare(recipe), 0
    while True:
        try:
            model = fit(recipe, prepared, run)
            break
        except Interrupted as sentence:
            assert str(sentence).endswith(f"localmoments fit --resume {run.path}")
            stops += 1
    assert stops >= 15 * len(recipe.model.hidden) // every
    assert same(model, expected)
    assert checkpoint.load(run.checkpoint)[0] == checkpoint.load(whole.checkpoint)[0]


def test_the_progress_of_a_resumed_run_ends_at_a_hundred_percent(signalled, tmp_path, capsys):
    recipe = recipe_with()  # 135 rows in batches of 32: an epoch's last is short
    run, prepared = new_run(tmp_path, recipe), prepare(recipe)
    signalled(8)
    with pytest.raises(Interrupted):
        fit(recipe, prepared, run)
    capsys.readouterr()
    fit(recipe, prepared, run)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "fit small: 100 %"
    ]


def test_a_signal_after_the_last_step_is_not_lost(monkeypatch, tmp_path):
    recipe = recipe_with()
    expected, _ = trained(tmp_path, recipe)
    save, run = checkpoint.save, new_run(tmp_path, recipe)

    def last(path, state, groups):
        save(path, state, groups)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(checkpoint, "save", last)
    with pytest.raises(Interrupted, match="Stopped after the last step"):
        fit(recipe, prepare(recipe), run)
    assert same(fit(recipe, prepare(recipe), run), expected)


def test_signal_handlers_are_restored_after_training(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    trained(tmp_path, recipe_with(epochs=1))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def held_out_loss(recipe, model):
    prepared = prepare(recipe)
    stage = make_stages(model, prepared.criterion, False)[0]
    g = torch.Generator().manual_seed(derive_seed(0, "validation", 0))
    with torch.no_grad():
        return stage.criterion(model, held_out_rows(prepared, 2_000), g).item()


def test_bfloat16_products_give_float32_weights_that_are_nearly_as_good(tmp_path):
    single, _ = trained(tmp_path, recipe_with(epochs=40))
    short, _ = trained(tmp_path, recipe_with(epochs=40, precision="bfloat16"))
    assert not same(single, short)
    assert {w.dtype for w in short.state_dict().values()} == {torch.float32}
    losses = [held_out_loss(recipe_with(), model) for model in (single, short)]
    untrained = held_out_loss(recipe_with(), new_model(prepare(recipe_with()), 0))
    assert abs(losses[1] - losses[0]) < 0.05 * (untrained - losses[0])


def test_the_kept_weights_are_those_with_the_lowest_held_out_loss(tmp_path):
    wild = {"epochs": 20, "learning_rate": 0.3, "schedule": "constant", "average": 0.1}
    best, run = trained(tmp_path, recipe_with(**wild))
    last, _ = trained(tmp_path, recipe_with(**wild, keep="last"))
    losses = checkpoint.load(run.checkpoint)[0].losses
    curve = [loss.valid for loss in losses]
    assert held_out_loss(recipe_with(), best) == min(curve)
    assert held_out_loss(recipe_with(), last) == curve[-1] > min(curve), "make it wilder"


class TestDivergence:
    """A loss that is not a number stops the run with one sentence."""

    def test_the_error_names_a_huge_learning_rate_and_nothing_is_written(self, tmp_path):
        with pytest.raises(TrainingError, match=r"became (nan|inf) at step 1.*learning_rate"):
            trained(tmp_path, recipe_with(learning_rate=1e30, schedule="constant"))
        assert not list(tmp_path.rglob("checkpoint*"))

    def test_the_last_good_checkpoint_is_kept_and_finite(self, tmp_path):
        recipe = recipe_with(epochs=200, learning_rate=1e30, checkpoint_seconds=1e-9)
        with pytest.raises(TrainingError, match="last good checkpoint is in"):
            trained(tmp_path, recipe)
        state, groups = checkpoint.load(tmp_path / "small/1/checkpoint.safetensors")
        assert state.step > 0 and not state.finished
        assert all(v.isfinite().all() for v in groups["model"].values())

    def test_weights_that_are_not_finite_are_never_saved(self, tmp_path):
        """The step's loss was finite, but the step itself overflowed; it would be saved next."""
        with pytest.raises(TrainingError, match="There is no checkpoint yet"):
            trained(tmp_path, recipe_with(epochs=200, learning_rate=1e300, checkpoint_seconds=1e-9))
        assert not list(tmp_path.rglob("checkpoint*"))

    def test_a_held_out_loss_that_is_not_finite_stops_the_training(self, tmp_path):
        """One step: its loss was computed before the weights went wrong."""
        with pytest.raises(TrainingError, match="became"):
            trained(tmp_path, recipe_with(epochs=1, batch=150, learning_rate=1e30))


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    _, run = trained(tmp_path, recipe_with())
    other = prepare(recipe_with(data={"source": "gaussian", "rows": 150, "seed": 1}))
    with pytest.raises(RunFolderError, match="gaussian has changed since"):
        read_checkpoint(run, other)


def test_a_new_run_has_the_initial_state(tmp_path):
    recipe = recipe_with()
    prepared = prepare(recipe)
    state, groups = read_checkpoint(new_run(tmp_path, recipe), prepared)
    assert state == State(data=prepared.dataset.fingerprint) and groups == {}


def test_the_learning_rate_rises_then_falls_to_a_hundredth():
    options = TrainingOptions(learning_rate=2.0)
    rates = [learning_rate(options, step, 1000) for step in range(1000)]
    top = rates.index(max(rates))
    assert top < 50 and rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert math.isclose(rates[-1], 0.02, rel_tol=0.01) and min(rates) > 0
    flat = replace(options, schedule="constant")
    assert learning_rate(flat, 999, 1000) == learning_rate(flat, 500, 1000) == 2.0


def test_a_small_step_uses_one_thread_a_large_one_all_cpus_and_a_setting_overrides_both(
    monkeypatch,
):
    monkeypatch.setattr("trainer.fit.available_cpus", lambda: 7)
    recipe = recipe_with()
    model = new_model(prepare(recipe), 0)
    options = recipe.training
    assert choose_threads(model, options) == 1
    assert choose_threads(model, replace(options, threads=3)) == 3
    assert choose_threads(model, replace(options, batch=10**9)) == 7
