"""A checkpoint gives back what was put in, and says plainly when it cannot."""

import math

import pytest
import torch
from safetensors.torch import save_file

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.checkpoint import Loss, State, adam_weights, copy_weights, load, restore_adam, save
from trainer.errors import RunFolderError

STATE = State("sha256:0", 1, 7, math.inf, 0.1 + 0.2, 3, False, (Loss(0, 5, 1 / 3, 2e-30),))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return AutoEncoder(Architecture(3, (4,), "tanh", "linear", tied=True))


def test_a_checkpoint_is_read_back_bit_for_bit(model, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    groups = {"model": copy_weights(model), "best": {"a/b": torch.tensor([1e-42, math.inf])}}
    save(path, STATE, groups)
    state, back = load(path)
    assert state == STATE and back.keys() == groups.keys()
    for group, tensors in groups.items():
        assert all(torch.equal(back[group][k], v) for k, v in tensors.items())
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_restored_adam_continues_bit_for_bit(model, tmp_path):
    def steps(optimiser, count):
        for _ in range(count):
            loss = model(torch.ones(2, 3)).square().sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    first = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    steps(first, 3)
    save(tmp_path / "c", STATE, {"model": copy_weights(model), **adam_weights(first, model)})
    steps(first, 2)
    expected = copy_weights(model)
    _, groups = load(tmp_path / "c")
    model.load_state_dict(groups["model"])
    second = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    restore_adam(second, model, groups)
    steps(second, 2)
    assert all(torch.equal(v, expected[k]) for k, v in copy_weights(model).items())


@pytest.mark.parametrize("metadata", [None, {"state": "{"}, {"state": '{"losses": [], "odd": 1}'},
                                      {"state": "[]"}, {"state": '{"losses": [[1]]}'}])  # fmt: skip
def test_a_file_without_a_usable_state_is_refused(metadata, tmp_path):
    save_file({"model/a": torch.zeros(1)}, tmp_path / "c", metadata)
    with pytest.raises(RunFolderError, match="c is not a usable checkpoint"):
        load(tmp_path / "c")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\xff" * 100])
def test_a_file_that_is_not_a_checkpoint_is_refused(content, tmp_path):
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(RunFolderError, match="c is not a usable checkpoint"):
        load(tmp_path / "c")


def test_a_missing_folder_gives_one_sentence(tmp_path):
    with pytest.raises(RunFolderError, match="cannot be written"):
        save(tmp_path / "gone" / "c", STATE, {})


def test_batches_are_counted_and_their_losses_summed():
    state = State().add_batch(2.0).add_batch(3.0)
    assert (state.step, state.loss_sum, state.loss_count) == (2, 5.0, 2)
