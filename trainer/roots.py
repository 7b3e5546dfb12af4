"""Draws from N(0, A) without ever building A: three roots, one interface.

    exact        Wᵀ (√f' ⊙ ε)      one tied layer with a linear decoder, where J = Wᵀ diag(f') W
    polynomial   p(A) ε, p(λ)² ≈ λ a few products with A = (J + Jᵀ)/2
    jacobian     γ J ε             one product; its covariance is γ² J Jᵀ, a sharper stand-in for A

J Jᵀ has less of every direction than A, λ² for λ, and a chain that is given too little spread
falls into the densest places. The gain γ makes up for it: γ² = tr A / tr J Jᵀ keeps the total.
The polynomial has no constant term, so what A maps to zero gets no noise at all: an error there
would act as isotropic noise and push a chain off the data's manifold.
"""

from abc import abstractmethod

import numpy as np
from torch import Tensor, nn

from service.core.types import Doubles
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.errors import RecipeError
from trainer.layers import UNITS, Dense, Linearised

UPPER = 1.1  # a trained J is contractive up to a little


class Root(nn.Module):
    """ε (B, noise) -> a draw from about N(0, A(x)), (B, d)."""

    noise: int

    @abstractmethod
    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        """`at` is r linearised at x."""


class Exact(Root):
    def __init__(self, ae: AutoEncoder) -> None:
        super().__init__()
        check_exact_root(ae.architecture)
        self._layer = (ae.encoder[0],)  # in a tuple, so that W keeps its one name, the owner's
        self.noise = ae.architecture.hidden[0]

    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        (layer,) = self._layer
        assert isinstance(layer, Dense)
        unit, a = UNITS[layer.unit], layer.before_unit(x, None)
        slope = unit.slope(a, unit.value(a))
        return layer.transposed_times(slope.sqrt() * ε)


class Polynomial(Root):
    """p(A) ε with p(λ) = λ q(λ), q in Chebyshev form and evaluated by its recurrence."""

    def __init__(self, ae: AutoEncoder, degree: int) -> None:
        super().__init__()
        self.noise = ae.architecture.dims
        self.coefficients = tuple(float(c) for c in root_polynomial(degree))

    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        def shifted(v: Tensor) -> Tensor:
            """(2/UPPER) A v - v: the spectrum moved from [0, UPPER] to [-1, 1]."""
            return (at.jvp(v) + at.vjp(v)) / UPPER - v

        u = (at.jvp(ε) + at.vjp(ε)) / 2  # T₀ A ε
        before, now = u, shifted(u)
        total = self.coefficients[0] * before + self.coefficients[1] * now
        for c in self.coefficients[2:]:
            before, now = now, 2 * shifted(now) - before
            total = total + c * now
        return total


class Jacobian(Root):
    def __init__(self, ae: AutoEncoder, gain: float = 1.0) -> None:
        super().__init__()
        self.noise = ae.architecture.dims
        self.gain = gain

    def forward(self, at: Linearised, x: Tensor, ε: Tensor) -> Tensor:
        return self.gain * at.jvp(ε)


def root_polynomial(degree: int) -> Doubles:
    """Chebyshev coefficients on [0, UPPER] of q, where λ q(λ) ≈ √λ.

    Least squares weighted by √λ, because an error δ of p is one of 2√λ δ in the variance.
    """
    t = np.cos(np.pi * (np.arange(2000) + 0.5) / 2000)
    λ = (t + 1) * UPPER / 2
    basis = np.polynomial.chebyshev.chebvander(t, degree - 1) * λ[:, None]
    weight = np.sqrt(λ)[:, None]
    return np.asarray(np.linalg.lstsq(basis * weight, λ, rcond=None)[0], np.float64)


def has_exact_root(a: Architecture) -> bool:
    one_tied = a.tied and len(a.hidden) == 1 and not a.conditioned
    return one_tied and a.decoder == "linear" and UNITS[a.unit].rising


def check_exact_root(a: Architecture) -> None:
    if not has_exact_root(a):
        raise RecipeError(
            "sampling.root = exact needs one tied layer with a linear decoder, not conditioned, "
            "and a unit that never falls (sigmoid, tanh, softplus, linear)."
        )


def make_root(name: str, ae: AutoEncoder, degree: int = 6, gain: float = 1.0) -> Root:
    """The root that a recipe asks for; `auto` is exact where it can be, else γ J ε."""
    if name == "auto":
        return Exact(ae) if has_exact_root(ae.architecture) else Jacobian(ae, gain)
    if name == "exact":
        return Exact(ae)
    if name == "polynomial":
        if degree < 2:
            raise RecipeError("sampling.root_degree must be 2 or more.")
        return Polynomial(ae, degree)
    if name == "jacobian":
        return Jacobian(ae, gain)
    raise RecipeError(f"sampling.root {name!r} is none of auto, exact, polynomial, jacobian.")
