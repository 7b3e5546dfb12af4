"""A layer's own Jacobian products against autograd."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainer.layers import UNITS, Dense, Layer, Residual, TransposedDense, compose, compose_pair

pytestmark = pytest.mark.usefixtures("double")

N, M, E = 4, 5, 3  # inputs, outputs, width of a condition


def _layer(kind: str, unit: str, condition: int) -> Layer:
    torch.manual_seed(1)
    layer: Layer = Dense(N, M, unit, condition)
    if kind == "transposed":
        layer = TransposedDense(Dense(M, N, "linear"), unit, condition)
    if kind == "residual":
        layer = Residual(N, unit, condition)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape))
    return layer


@pytest.mark.parametrize("condition", [0, E])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kind", ["dense", "transposed", "residual"])
def test_products_of_every_layer_equal_autograd(
    kind: str, unit: str, condition: int, jacobian_of: Callable[..., Tensor]
) -> None:
    layer = _layer(kind, unit, condition)
    x, c = torch.randn(6, N), torch.randn(6, E) if condition else None
    at = layer.linearise(x, c)
    J = jacobian_of(lambda z: layer(z, c), x)  # (B, m, n)
    v, w = torch.randn(6, 3, J.shape[2]), torch.randn(6, 3, J.shape[1])
    torch.testing.assert_close(at.value, layer(x, c))
    torch.testing.assert_close(at.jvp(v), v @ J.mT)
    torch.testing.assert_close(at.vjp(w), w @ J)
    torch.testing.assert_close(at.jvp(v[:, 0]), (v @ J.mT)[:, 0])
    torch.testing.assert_close(at.vjp(w[:, 0]), (w @ J)[:, 0])
    pushed = layer.push(x, v, c)
    torch.testing.assert_close(pushed.value, layer(x, c))
    torch.testing.assert_close(pushed.tangents, v @ J.mT)
    torch.testing.assert_close(pushed.vjp(w), w @ J)


@pytest.mark.parametrize("unit", UNITS)
def test_a_units_slope_is_its_derivative_and_rising_says_its_sign(unit: str) -> None:
    a = torch.linspace(-12, 12, 2001, requires_grad=True)
    y = UNITS[unit].value(a)
    (expected,) = torch.autograd.grad(y.sum(), a)
    slope = UNITS[unit].slope(a, y)
    torch.testing.assert_close(slope, expected, atol=1e-12, rtol=1e-9)
    assert bool((slope >= 0).all()) == UNITS[unit].rising


def test_a_condition_moves_the_value() -> None:
    for kind in ("dense", "transposed", "residual"):
        layer = _layer(kind, "tanh", E)
        x = torch.randn(2, N)
        assert not torch.allclose(layer(x, torch.zeros(2, E)), layer(x, torch.ones(2, E)))


def test_a_residual_layer_starts_as_the_identity() -> None:
    x = torch.randn(3, N)
    torch.testing.assert_close(Residual(N, "silu")(x, None), x)


def test_composition_follows_the_chain_rule(jacobian_of: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    f, g = Dense(N, M, "tanh"), Dense(M, N, "sigmoid")
    x, v, w = torch.randn(2, N), torch.randn(2, N), torch.randn(2, N)
    J = jacobian_of(lambda z: g(f(z)), x)
    inner = f.linearise(x, None)
    for at in (compose([f, g], x, None), compose_pair(inner, g.linearise(inner.value, None))):
        torch.testing.assert_close(at.value, g(f(x)))
        torch.testing.assert_close(at.jvp(v), torch.einsum("bij,bj->bi", J, v))
        torch.testing.assert_close(at.vjp(w), torch.einsum("bij,bi->bj", J, w))


def test_a_transposed_layer_owns_no_weight_of_its_own() -> None:
    assert set(TransposedDense(Dense(N, M, "tanh"), "tanh").state_dict()) == {"bias"}
