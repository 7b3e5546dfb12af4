"""Layers that know their own linearisation, written as forward operations.

torch's exporter does not take `torch.func.jvp` or `vjp`, and the hand-written products are
faster anyway. So each layer returns, beside its value, the two products with its Jacobian

    J v = s'(a) ⊙ (W v)          Jᵀ w = Wᵀ (s'(a) ⊙ w)          a = W x + b

as ordinary tensor operations, which autograd can differentiate and ONNX can hold. Vectors may be
one a row, (B, n), or k a row, (B, k, n).
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Linearised:
    """A map's value at a point, and its Jacobian there as two products."""

    value: Tensor  # (B, m)
    jvp: Product  # (B, [k,] n) -> (B, [k,] m)
    vjp: Product  # (B, [k,] m) -> (B, [k,] n)


def compose(layers: "Iterable[Layer]", x: Tensor, c: Tensor | None) -> Linearised:
    """The linearisation of layers applied one after the other (the chain rule)."""
    steps: list[Linearised] = []
    for layer in layers:
        steps.append(layer.linearise(x, c))
        x = steps[-1].value

    def jvp(v: Tensor) -> Tensor:
        for step in steps:
            v = step.jvp(v)
        return v

    def vjp(w: Tensor) -> Tensor:
        for step in reversed(steps):
            w = step.vjp(w)
        return w

    return Linearised(x, jvp, vjp)


def then(first: Linearised, second: Linearised) -> Linearised:
    """second ∘ first, both already linearised."""
    return Linearised(
        second.value,
        lambda v: second.jvp(first.jvp(v)),
        lambda w: first.vjp(second.vjp(w)),
    )


@dataclass(frozen=True)
class Unit:
    """s(a), and s'(a) from a and y = s(a)."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    rising: bool = True  # the slope is never negative


def _silu_slope(a: Tensor, y: Tensor) -> Tensor:
    s = torch.sigmoid(a)
    return s + y * (1 - s)


UNITS = {
    "sigmoid": Unit(torch.sigmoid, lambda a, y: y * (1 - y)),
    "tanh": Unit(torch.tanh, lambda a, y: 1 - y * y),
    "softplus": Unit(F.softplus, lambda a, y: torch.sigmoid(a)),
    "silu": Unit(F.silu, _silu_slope, rising=False),
    "linear": Unit(lambda a: a, lambda a, y: torch.ones_like(a)),
}


class Layer(nn.Module):
    """One map x -> y, with an optional condition c (an embedded noise level)."""

    @abstractmethod
    def forward(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        """The value alone, for when no Jacobian is wanted."""

    @abstractmethod
    def linearise(self, x: Tensor, c: Tensor | None) -> Linearised:
        """The value with the two Jacobian products."""


class Dense(Layer):
    """y = s(W x + b), with + V c inside where the layer is conditioned."""

    def __init__(self, n: int, m: int, unit: str, condition: int = 0) -> None:
        super().__init__()
        self.unit = unit
        self.weight = nn.Parameter(torch.empty(m, n))
        self.bias = nn.Parameter(torch.zeros(m))
        self.condition = nn.Parameter(torch.zeros(m, condition)) if condition else None
        nn.init.uniform_(self.weight, -math.sqrt(3 / n), math.sqrt(3 / n))  # variance 1/n
        nn.init.uniform_(self.bias, -math.sqrt(1 / n), math.sqrt(1 / n))

    def times(self, x: Tensor) -> Tensor:
        """W x"""
        return F.linear(x, self.weight)

    def transposed_times(self, w: Tensor) -> Tensor:
        """Wᵀ w"""
        return w @ self.weight

    def affine(self, x: Tensor) -> Tensor:
        """W x + b"""
        return F.linear(x, self.weight, self.bias)

    def before_unit(self, x: Tensor, c: Tensor | None) -> Tensor:
        """a = W x + b (+ V c)"""
        a = self.affine(x)
        return a if self.condition is None or c is None else a + F.linear(c, self.condition)

    def forward(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        return UNITS[self.unit].value(self.before_unit(x, c))

    def linearise(self, x: Tensor, c: Tensor | None) -> Linearised:
        a, unit = self.before_unit(x, c), UNITS[self.unit]  # (B, m)
        y = unit.value(a)
        slope = unit.slope(a, y)
        return Linearised(
            y,
            lambda v: self.times(v) * _beside(slope, v),
            lambda w: self.transposed_times(w * _beside(slope, w)),
        )


class Transposed(Dense):
    """The tied decoder's layer: y = s(Wᵀ x + c) with another layer's W."""

    def __init__(self, source: Dense, unit: str, condition: int = 0) -> None:
        m, n = source.weight.shape
        super().__init__(1, 1, unit, 0)
        del self.weight
        self.bias = nn.Parameter(torch.zeros(n))
        self.condition = nn.Parameter(torch.zeros(n, condition)) if condition else None
        self._source = (source,)  # in a tuple, so that W is registered once, with its owner

    def affine(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self._source[0].weight)

    def times(self, x: Tensor) -> Tensor:
        return self._source[0].transposed_times(x)

    def transposed_times(self, w: Tensor) -> Tensor:
        return self._source[0].times(w)


class Residual(Layer):
    """y = x + U s(W x + b) + u: starts as the identity, because U starts at zero."""

    def __init__(self, n: int, unit: str, condition: int = 0) -> None:
        super().__init__()
        self.inner = Dense(n, n, unit, condition)
        self.weight = nn.Parameter(torch.zeros(n, n))
        self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        return x + F.linear(self.inner(x, c), self.weight, self.bias)

    def linearise(self, x: Tensor, c: Tensor | None) -> Linearised:
        inner, U = self.inner.linearise(x, c), self.weight
        return Linearised(
            x + F.linear(inner.value, U, self.bias),
            lambda v: v + F.linear(inner.jvp(v), U),
            lambda w: w + inner.vjp(w @ U),
        )


def _beside(slope: Tensor, v: Tensor) -> Tensor:
    """The slope (B, m), shaped to multiply one vector a row or k of them."""
    return slope if v.dim() == 2 else slope.unsqueeze(1)
