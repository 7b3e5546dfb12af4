"""J and J_f of every architecture as products, against autograd."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainer.autoencoder import Architecture, AutoEncoder
from trainer.errors import RecipeError
from trainer.layers import UNITS

pytestmark = pytest.mark.usefixtures("double")

SHAPES = {"tied": {"tied": True}, "untied": {}, "residual": {"blocks": 1}}
CASES = [
    pytest.param(
        Architecture(5, hidden, unit, decoder, conditioned=conditioned, **SHAPES[shape]),  # type: ignore[arg-type]
        id=f"{unit}-{decoder}-{shape}-{'conditioned' if conditioned else 'plain'}-{len(hidden)}",
    )
    for unit, decoder, shape, conditioned, hidden in itertools.product(
        UNITS, ("linear", "sigmoid"), SHAPES, (False, True), ((6,), (6, 3))
    )
]


@pytest.mark.parametrize("architecture", CASES)
def test_jacobian_products_equal_autograd(
    architecture: Architecture,
    make_ae: Callable[..., AutoEncoder],
    jacobian_of: Callable[..., Tensor],
) -> None:
    ae = make_ae(architecture)
    torch.manual_seed(0)
    x = torch.randn(3, 5)
    sigma = torch.rand(3, 1) + 0.1 if architecture.conditioned else None
    h = ae.encode(x, sigma).detach()
    maps = [
        (ae.linearise(x, sigma), lambda z: ae(z, sigma), x),
        (ae.linearise_encoder(x, sigma), lambda z: ae.encode(z, sigma), x),
        (ae.linearise_decoder(h, sigma), lambda z: ae.decode(z, sigma), h),
    ]
    for at, f, point in maps:
        J = jacobian_of(f, point)  # (B, m, n)
        v, w = torch.randn(3, 2, J.shape[2]), torch.randn(3, 2, J.shape[1])
        torch.testing.assert_close(at.value, f(point))
        torch.testing.assert_close(at.jvp(v), v @ J.mT)
        torch.testing.assert_close(at.vjp(w), w @ J)
        torch.testing.assert_close(at.jvp(v[:, 0]), (v @ J.mT)[:, 0])
        torch.testing.assert_close(at.vjp(w[:, 0]), (w @ J)[:, 0])


@pytest.mark.parametrize("architecture", CASES)
def test_push_equals_value_and_product_computed_separately(
    architecture: Architecture, make_ae: Callable[..., AutoEncoder]
) -> None:
    ae = make_ae(architecture)
    torch.manual_seed(0)
    x, v = torch.randn(3, 5), torch.randn(3, 2, 5)
    sigma = torch.rand(3, 1) + 0.1 if architecture.conditioned else None
    for pushed, at in (
        (ae.push(x, v, sigma), ae.linearise(x, sigma)),
        (ae.push_encoder(x, v, sigma), ae.linearise_encoder(x, sigma)),
    ):
        w = torch.randn(pushed.tangents.shape)
        torch.testing.assert_close(pushed.value, at.value)
        torch.testing.assert_close(pushed.tangents, at.jvp(v))
        torch.testing.assert_close(pushed.vjp(w), at.vjp(w))


def test_reconstruction_is_decode_after_encode(make_ae: Callable[..., AutoEncoder]) -> None:
    ae, x = make_ae(Architecture(5, (6, 3), "tanh", "sigmoid")), torch.randn(4, 5)
    torch.testing.assert_close(ae(x), ae.decode(ae.encode(x)))
    torch.testing.assert_close(torch.sigmoid(ae.decode_logits(ae.encode(x))), ae(x))


def test_tied_weights_are_stored_once() -> None:
    tied = AutoEncoder(Architecture(5, (6, 3), tied=True)).state_dict()
    untied = AutoEncoder(Architecture(5, (6, 3))).state_dict()
    assert {k for k in tied if k.endswith("weight")} == {"encoder.0.weight", "encoder.1.weight"}
    assert len([k for k in untied if k.endswith("weight")]) == 4


def test_a_tied_decoder_follows_its_encoder(make_ae: Callable[..., AutoEncoder]) -> None:
    ae = make_ae(Architecture(4, (6,), "linear", "linear", tied=True))
    with torch.no_grad():
        ae.encoder[0].weight.mul_(2.0)  # type: ignore[union-attr, operator]
    v, W = torch.randn(1, 4), ae.state_dict()["encoder.0.weight"]
    torch.testing.assert_close(ae.linearise(torch.zeros(1, 4)).jvp(v), v @ W.T @ W)


def test_a_conditioned_model_depends_on_its_noise_level_and_requires_it(
    make_ae: Callable[..., AutoEncoder],
) -> None:
    ae, x = make_ae(Architecture(4, (6,), conditioned=True)), torch.randn(2, 4)
    low, high = torch.full((2, 1), 0.1), torch.full((2, 1), 1.0)
    assert not torch.allclose(ae(x, low), ae(x, high))
    mixed = ae(x, torch.tensor([[0.1], [1.0]]))  # each row has its own
    torch.testing.assert_close(mixed, torch.stack([ae(x, low)[0], ae(x, high)[1]]))
    with pytest.raises(ValueError, match="needs its noise level"):
        ae(x)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"unit": "relu"}, "unit"),
        ({"decoder": "tanh"}, "decoder"),
        ({"hidden": ()}, "hidden"),
        ({"hidden": (4, 0)}, "hidden"),
        ({"dims": 0}, "width"),
        ({"blocks": -1}, "blocks"),
        ({"tied": True, "blocks": 1}, "exclude"),
    ],
)
def test_an_impossible_architecture_is_refused_in_a_sentence(
    change: dict[str, object], word: str
) -> None:
    with pytest.raises(RecipeError, match=rf"{word}.*\.$"):
        Architecture(**{"dims": 3, "hidden": (4,)} | change)  # type: ignore[arg-type]
