"""Layers that know their own linearisation, written as forward operations.

torch's exporter does not support `torch.func.jvp` and `vjp`, and hand-written products are faster.
So each layer returns its value together with two products with its Jacobian,

    J v = s'(a) ⊙ (W v)          Jᵀ w = Wᵀ (s'(a) ⊙ w)          a = W x + b

as ordinary tensor operations, which autograd can differentiate and ONNX can represent. There may be
one vector per row, (B, n), or k vectors per row, (B, k, n).

`push` computes value and J v together, as one product W [x, v]: with few rows, reading W takes as
long as multiplying.
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
class Linearisation:
    """The value of a map at a point, and its Jacobian there as two products."""

    value: Tensor  # (B, m)
    jvp: Product  # (B, [k,] n) -> (B, [k,] m)
    vjp: Product  # (B, [k,] m) -> (B, [k,] n)


@dataclass(frozen=True)
class Pushforward:
    """The value of a map at a point, J v for given vectors, and Jᵀ as a product."""

    value: Tensor  # (B, m)
    tangents: Tensor  # (B, k, m): J v
    vjp: Product  # (B, [k,] m) -> (B, [k,] n)


def push(layers: "Iterable[Layer]", x: Tensor, v: Tensor, c: Tensor | None) -> Pushforward:
    """Push a point x (B, n) and vectors v (B, k, n) through layers, one after the other."""
    backwards: list[Product] = []
    for layer in layers:
        at = layer.push(x, v, c)
        x, v = at.value, at.tangents
        backwards.append(at.vjp)

    def vjp(w: Tensor) -> Tensor:
        for back in reversed(backwards):
            w = back(w)
        return w

    return Pushforward(x, v, vjp)


def compose(layers: "Iterable[Layer]", x: Tensor, c: Tensor | None) -> Linearisation:
    """The linearisation of layers applied one after the other (the chain rule)."""
    steps: list[Linearisation] = []
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

    return Linearisation(x, jvp, vjp)


def compose_pair(first: Linearisation, second: Linearisation) -> Linearisation:
    """The linearisation of second ∘ first, from those of both."""
    return Linearisation(
        second.value,
        lambda v: second.jvp(first.jvp(v)),
        lambda w: first.vjp(second.vjp(w)),
    )


@dataclass(frozen=True)
class Unit:
    """An activation function s(a), and its slope s'(a) from a and y = s(a)."""

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
    """A map x -> y with an optional condition c, an embedded noise level."""

    @abstractmethod
    def forward(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        """The value at x (B, n) alone."""

    @abstractmethod
    def linearise(self, x: Tensor, c: Tensor | None) -> Linearisation:
        """The value at x (B, n) with the two Jacobian products."""

    @abstractmethod
    def push(self, x: Tensor, v: Tensor, c: Tensor | None) -> Pushforward:
        """The value at x (B, n) with J v for v (B, k, n)."""


class Dense(Layer):
    """y = s(W x + b), or s(W x + b + V c) for a conditioned layer."""

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
        return self._add_condition(self.affine(x), c)

    def _add_condition(self, a: Tensor, c: Tensor | None) -> Tensor:
        return a if self.condition is None or c is None else a + F.linear(c, self.condition)

    def forward(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        return UNITS[self.unit].value(self.before_unit(x, c))

    def linearise(self, x: Tensor, c: Tensor | None) -> Linearisation:
        a, unit = self.before_unit(x, c), UNITS[self.unit]  # (B, m)
        y = unit.value(a)
        slope = unit.slope(a, y)
        return Linearisation(
            y,
            lambda v: self.times(v) * _match(slope, v),
            lambda w: self.transposed_times(w * _match(slope, w)),
        )

    def push(self, x: Tensor, v: Tensor, c: Tensor | None) -> Pushforward:
        Wx, Wv = _split(self.times(_join(x, v)))
        a, unit = self._add_condition(Wx + self.bias, c), UNITS[self.unit]  # (B, m)
        y = unit.value(a)
        slope = unit.slope(a, y)
        return Pushforward(
            y,
            Wv * slope.unsqueeze(1),
            lambda w: self.transposed_times(w * _match(slope, w)),
        )


class TransposedDense(Dense):
    """A layer of a tied decoder: y = s(Wᵀ x + b) with the W of another layer."""

    def __init__(self, source: Dense, unit: str, condition: int = 0) -> None:
        m, n = source.weight.shape
        super().__init__(1, 1, unit, 0)
        del self.weight
        self.bias = nn.Parameter(torch.zeros(n))
        self.condition = nn.Parameter(torch.zeros(n, condition)) if condition else None
        self._source = (source,)  # in a tuple, so that W is registered only once, in its layer

    def affine(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self._source[0].weight)

    def times(self, x: Tensor) -> Tensor:
        return self._source[0].transposed_times(x)

    def transposed_times(self, w: Tensor) -> Tensor:
        return self._source[0].times(w)


class Residual(Layer):
    """y = x + U s(W x + b) + u. U starts at zero, so that the block starts as the identity."""

    def __init__(self, n: int, unit: str, condition: int = 0) -> None:
        super().__init__()
        self.inner = Dense(n, n, unit, condition)
        self.weight = nn.Parameter(torch.zeros(n, n))
        self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, x: Tensor, c: Tensor | None = None) -> Tensor:
        return x + F.linear(self.inner(x, c), self.weight, self.bias)

    def linearise(self, x: Tensor, c: Tensor | None) -> Linearisation:
        inner, U = self.inner.linearise(x, c), self.weight
        return Linearisation(
            x + F.linear(inner.value, U, self.bias),
            lambda v: v + F.linear(inner.jvp(v), U),
            lambda w: w + inner.vjp(w @ U),
        )

    def push(self, x: Tensor, v: Tensor, c: Tensor | None) -> Pushforward:
        inner, U = self.inner.push(x, v, c), self.weight
        Uy, Uv = _split(F.linear(_join(inner.value, inner.tangents), U))
        return Pushforward(x + Uy + self.bias, v + Uv, lambda w: w + inner.vjp(w @ U))


def _join(x: Tensor, v: Tensor) -> Tensor:
    """x (B, n) and v (B, k, n) as (B, 1 + k, n)."""
    return torch.cat([x.unsqueeze(1), v], dim=1)


def _split(both: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of `_join`."""
    return both[:, 0], both[:, 1:]


def _match(slope: Tensor, v: Tensor) -> Tensor:
    """The slope (B, m), shaped to multiply one vector or k vectors per row."""
    return slope if v.dim() == 2 else slope.unsqueeze(1)
