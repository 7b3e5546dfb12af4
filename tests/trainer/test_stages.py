"""A stacked CAE is trained layer by layer, in the model's own layers."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.config import make_recipe
from trainer.criteria import Criterion
from trainer.fit import fit, make_stages, new_model
from trainer.prepare import prepare
from trainer.run_folder import new_run

Maker = Callable[..., AutoEncoder]

CAE = Criterion("cae", "cross-entropy", 0.1, (0.5, 0.5))
STACK = Architecture(6, (5, 4, 3), "sigmoid", "sigmoid", tied=True)


def test_there_is_one_stage_unless_layers_are_stacked(make_ae: Maker) -> None:
    ae, x = make_ae(STACK), torch.randn(2, 6)
    (stage,) = make_stages(ae, CAE, stacked=False)
    assert stage.part is ae and stage.criterion is CAE and stage.to_input(x) is x
    one = make_ae(Architecture(6, (5,)))
    assert [s.part for s in make_stages(one, CAE, stacked=True)] == [one]


@pytest.mark.parametrize("tied", [True, False])
def test_stages_share_their_layers_with_the_model(tied: bool, make_ae: Maker) -> None:
    ae = make_ae(Architecture(6, (5, 4, 3), "sigmoid", "sigmoid", tied=tied))
    parts = [s.part for s in make_stages(ae, CAE, stacked=True)]
    for i, part in enumerate(parts):
        assert list(part.encoder) == [ae.encoder[i]]
        assert list(part.decoder) == [ae.decoder[2 - i]]
    owned = [id(p) for part in parts for p in part.parameters()]
    assert sorted(owned) == sorted(id(p) for p in ae.parameters())  # each in one stage


def test_a_stages_input_is_the_representation_below_it(make_ae: Maker) -> None:
    ae, x = make_ae(STACK), torch.rand(4, 6)
    first, second, third = make_stages(ae, CAE, stacked=True)
    torch.testing.assert_close(first.to_input(x), x)
    h1 = ae.encoder[0](x)
    torch.testing.assert_close(second.to_input(x), h1)
    torch.testing.assert_close(third.to_input(x), ae.encoder[1](h1))
    assert not third.to_input(x).requires_grad


def test_a_stages_part_is_a_one_layer_auto_encoder_of_that_input(make_ae: Maker) -> None:
    ae, x = make_ae(STACK), torch.rand(4, 6)
    for i, stage in enumerate(make_stages(ae, CAE, stacked=True)):
        below = stage.to_input(x)
        assert stage.part.architecture.dims == below.shape[1]
        h = ae.encoder[i](below)
        torch.testing.assert_close(stage.part.encode(below), h)
        torch.testing.assert_close(stage.part(below), ae.decoder[2 - i](h))


@pytest.mark.parametrize(
    ("unit", "decoder", "losses"),
    [
        ("sigmoid", "sigmoid", ["cross-entropy", "cross-entropy"]),
        ("tanh", "sigmoid", ["cross-entropy", "squared"]),
    ],
)
def test_cross_entropy_is_used_only_if_the_output_of_a_stage_is_a_sigmoid(
    unit: str, decoder: str, losses: list[str], make_ae: Maker
) -> None:
    ae = make_ae(Architecture(6, (5, 4), unit, decoder, tied=True))
    assert [s.criterion.loss for s in make_stages(ae, CAE, stacked=True)] == losses


def test_a_step_of_the_second_stage_leaves_the_first_untouched(make_ae: Maker) -> None:
    ae, x = make_ae(STACK), torch.rand(16, 6)
    stage = make_stages(ae, CAE, stacked=True)[1]
    before = {k: v.clone() for k, v in ae.state_dict().items()}
    optimiser = torch.optim.SGD(ae.parameters(), lr=0.1)
    stage.criterion(stage.part, stage.to_input(x), torch.Generator()).backward()
    optimiser.step()
    changed = {k for k, v in ae.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"encoder.1.weight", "encoder.1.bias", "decoder.1.bias"}


def test_fitting_a_stack_trains_every_layer(tmp_path: Path) -> None:
    recipe = make_recipe(
        {
            "name": "stack",
            "data": {"source": "digits", "rows": 300},
            "model": {"hidden": [20, 10], "unit": "sigmoid", "tied": True},
            "criterion": {"kind": "cae", "loss": "cross-entropy", "stacked": True},
            "training": {"epochs": 8, "batch": 32, "learning_rate": 1e-2, "average": 0.5},
        }
    )
    prepared = prepare(recipe)
    run = new_run(tmp_path, recipe)
    before = new_model(prepared, 0).state_dict()
    after = fit(recipe, prepared, run).state_dict()
    assert all(not torch.equal(after[k], before[k]) for k in after)
    rows = [line.split(",") for line in (run.path / "losses.csv").read_text().split()[1:]]
    for stage in ("0", "1"):
        valid = [float(row[3]) for row in rows if row[0] == stage]
        assert valid[-1] < valid[0]
